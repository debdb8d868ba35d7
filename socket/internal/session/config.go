package session

import (
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

// Config is what all sessions of a server have in common. All fields are required.
type Config struct {
	ConnectTimeout  time.Duration // from hello to welcome
	AckTimeout      time.Duration // from an event's write to its ack
	ReloadTimeout   time.Duration // the same for a welcome with recovered false
	RefreshInterval time.Duration
	AckedInterval   time.Duration // between two writes of @acked
	QueueEvents     int
	QueueBytes      int

	// Welcome is what every welcome says alike: ping interval, largest frame.
	Welcome protocol.Welcome
	// ReconnectWithin is asked at each welcome.
	ReconnectWithin func() time.Duration
	// Count is told what happens; called often, under the session's lock.
	Count func(What, int)
	// Random returns a number of [0, 1), for jitter.
	Random func() float64
}

// Client is what one session is about.
type Client struct {
	User    protocol.UserID
	At      registry.Location
	Acks    bool               // false: a completed write counts as ack
	Resume  *protocol.Position // where the client stands
	Issued  time.Time          // of its token: what was revoked later is refused
	Expires time.Time          // of its token
}

// What is counted.
type What int

// The things that are counted.
const (
	Sent          What = iota // events put into the send queue
	Acked                     // seqs that a client acked
	BadAck                    // acks above what was sent
	StaleAck                  // acks of an older welcome
	Recovered                 // welcomes with recovered true
	Fresh                     // first welcomes of clients that did not resume
	NotRecovered              // welcomes with recovered false to clients that had a position
	Rehomed                   // welcomes in-band
	Gap                       // gaps read from the log
	Broken                    // breaks
	Duplicate                 // events not shown again
	Expired                   // events past their expiry
	EphemeralDrop             // ephemeral events dropped: too old, known, or no room
	QueueDrop                 // events dropped with a queue that a welcome made void
	Covered                   // pairs settled as older than the session's epoch
	whats                     //
)

// Whats is how many kinds are counted.
const Whats = int(whats)

// String names w as metrics do.
func (w What) String() string {
	return [...]string{
		"sent", "acked", "bad_ack", "stale_ack", "recovered", "fresh", "not_recovered", "rehomed", "gap",
		"break", "duplicate", "expired", "ephemeral_drop", "queue_drop", "covered",
	}[w]
}

// Ticket is a pair that somebody waits for: whoever read it from the inbox.
type Ticket interface {
	// Settle says that the pair's user has it, or needs it no more. Called under the session's
	// lock, at most once by each session.
	Settle()
}

// Delivery is a pair that was read from the inbox.
type Delivery struct {
	Event       *protocol.Envelope
	Pair        protocol.Pair
	Redelivered bool
	Ticket      Ticket
}

func (d *Delivery) settle() {
	if d.Ticket != nil {
		d.Ticket.Settle()
	}
}
