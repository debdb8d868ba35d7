package session

import (
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

type phase int

const (
	connecting phase = iota // no welcome yet
	live
	closing // Closed tells why; acks still count
	ended   // no connection any more; last scripts
	gone
)

// nothing is an acked seq below all others: the client has confirmed nothing yet.
const nothing = protocol.Seq(-1)

// Machine is one session. It does no I/O, has no clock and starts nothing: whoever drives it holds a
// lock around every call, passes the time in, runs what Script returns, writes what Take returns, and
// calls Tick at Deadline.
type Machine struct {
	// fixed after construction
	cfg       *Config
	connectBy time.Time

	// who and where
	client   Client
	replaces registry.Field // registered in an earlier life of the instance
	home     registry.Field // where the last connect script put the session
	life     int            // counts the instance's lives
	phase    phase
	close    protocol.CloseCode

	// the log, as far as the session knows it
	epoch      protocol.Epoch
	sent       protocol.Seq // all up to here is in the send queue, written, or skipped
	sentID     protocol.EventID
	ids        ids
	end        protocol.Seq // the log reached at least here
	connectEnd protocol.Seq // where it ended at connect
	resent     protocol.Seq // up to here the client may have seen it before
	older      protocol.Epoch

	// what the client confirmed
	acked      protocol.Seq // under the newest welcome; nothing before it is acked
	pos        *protocol.Position
	written    ackTimer
	welcome    welcome
	ackedSaved protocol.Seq // in the registry
	ackedTime  time.Time    // of that

	// pairs
	queue     []Delivery // not judged yet
	waiting   []waiting  // sent, not acked
	covered   []Ticket   // of older epochs: settled when the welcome is acked
	ephemeral []protocol.EventID

	// events to be fetched for the seqs after sent
	feed    []protocol.EventID
	docs    map[protocol.EventID]*protocol.Envelope // of the first fetched ones of them
	fetched int
	greet   *registry.Connected // its welcome waits for the first of the feed
	atStart bool                // the feed comes from a connect, not from a gap

	out sendQueue

	// scripts
	script      *Script
	head        *Script // what the queue's head asks for
	held        protocol.Seq
	connectDue  bool
	breakDue    bool
	refreshDue  bool
	refreshAt   time.Time
	pausedUntil time.Time
	tries       int
	registered  bool
}

type waiting struct {
	seq    protocol.Seq
	id     protocol.EventID
	ticket Ticket
}

// welcome is the newest one.
type welcome struct {
	n         int64
	seq       protocol.Seq
	recovered bool
	acked     bool
}

// New returns a session that wants to connect.
func New(cfg *Config, client Client, now time.Time) *Machine {
	m := &Machine{
		cfg: cfg, client: client, connectBy: now.Add(cfg.ConnectTimeout),
		pos: client.Resume, acked: nothing, ackedSaved: nothing, connectDue: true,
	}
	m.ids.reset(0, nil)
	return m
}

// User is the session's user.
func (m *Machine) User() protocol.UserID { return m.client.User }

// At is where the session is, or is about to be, registered.
func (m *Machine) At() registry.Field { return m.client.At.Field }

// Home is where the session is registered: the zero Field before the first connect script.
func (m *Machine) Home() registry.Field { return m.home }

// Sent is the newest seq that was sent or skipped.
func (m *Machine) Sent() protocol.Seq { return m.sent }

// Live says whether the client has (or will have, from the queue) its welcome.
func (m *Machine) Live() bool { return m.phase == live }

// Ended says that there is no connection any more.
func (m *Machine) Ended() bool { return m.phase >= ended }

// PausedUntil is before when no script runs, since the last one failed.
func (m *Machine) PausedUntil() time.Time { return m.pausedUntil }

// Gone says that nothing is left to do.
func (m *Machine) Gone() bool { return m.phase == gone }

// Closed is the code to close the connection with, once there is one.
func (m *Machine) Closed() (protocol.CloseCode, bool) { return m.close, m.phase >= closing }

// Push takes a pair from the inbox; false: the session is over and does not hold it. Pairs that can't be
// judged yet wait without a bound of their own: whoever gave them holds their events anyway, and bounds
// all of them together.
func (m *Machine) Push(now time.Time, d Delivery) bool {
	if m.phase >= ended {
		return false
	}
	if d.Event.Ephemeral && m.halfFull() {
		m.cfg.Count(EphemeralDrop, 1)
		d.settle()
		return true
	}
	if len(m.queue) > 0 || !m.free() || !m.judge(now, d) {
		m.queue = append(m.queue, d)
	}
	m.advance(now)
	return true
}

// Refresh makes the session look at its registration before any further pair: Redis may have gone back.
// So may what it knew of acks: that is written again.
func (m *Machine) Refresh(now time.Time) {
	m.refreshDue, m.ackedSaved = true, nothing
	m.advance(now)
}

// Rehome tells of a new life of the instance. All that was read from the old inbox is forgotten.
func (m *Machine) Rehome(now time.Time, id protocol.InstanceID) {
	if m.client.At.Instance == id {
		return
	}
	m.life++
	m.forget()
	if m.phase >= closing {
		return // it leaves the old place, which goes away with its instance
	}
	if m.registered && m.replaces == (registry.Field{}) {
		m.replaces = m.client.At.Field
	}
	m.client.At.Instance = id
	m.connectDue = true
	m.noFeed()
	m.pausedUntil, m.tries = time.Time{}, 0
	m.advance(now)
}

func (m *Machine) forget() {
	m.queue = nil
	m.waiting, m.covered, m.head, m.held = nil, nil, nil, 0
}

// Close asks for the end of the connection; the first code stands. What waits to be written still
// goes out with CloseRestart.
func (m *Machine) Close(code protocol.CloseCode) {
	if m.phase >= closing {
		return
	}
	m.phase, m.close = closing, code
	if code != protocol.CloseRestart {
		n := int64(0)
		m.cfg.Count(QueueDrop, m.out.void(&n))
	}
}

// End says that there is no connection any more; it returns what the session still held. The last
// scripts follow.
func (m *Machine) End(now time.Time) []Ticket {
	if m.phase >= ended {
		return nil
	}
	if m.phase < closing {
		m.close = protocol.CloseBye
	}
	m.phase = ended
	tickets := make([]Ticket, 0, len(m.queue)+len(m.waiting)+len(m.covered))
	add := func(t Ticket) {
		if t != nil {
			tickets = append(tickets, t)
		}
	}
	for i := range m.queue {
		add(m.queue[i].Ticket)
	}
	for _, w := range m.waiting {
		add(w.ticket)
	}
	for _, t := range m.covered {
		add(t)
	}
	m.forget()
	m.noFeed()
	m.out = sendQueue{}
	m.pausedUntil, m.tries = time.Time{}, 0
	return tickets
}

// Token takes a fresh token of the same user.
func (m *Machine) Token(issued, expires time.Time) {
	m.client.Issued, m.client.Expires = issued, expires
}

// Tick looks at what is due.
func (m *Machine) Tick(now time.Time) {
	if m.phase >= closing {
		return
	}
	switch due := m.client.Expires; {
	case !due.IsZero() && !now.Before(due):
		m.Close(protocol.CloseTokenExpired)
	case m.phase == connecting && !now.Before(m.connectBy):
		m.Close(protocol.CloseOverloaded)
	case m.ackLate(now):
		m.Close(protocol.CloseAckTimeout)
	}
	m.advance(now)
}

// Deadline is when Tick is due; the zero time: not before something else happens.
func (m *Machine) Deadline(now time.Time) time.Time {
	var first time.Time
	soon := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	switch m.phase {
	case connecting:
		soon(m.connectBy)
		soon(m.client.Expires)
	case live:
		soon(m.client.Expires)
		soon(m.ackDeadline())
	}
	switch {
	case m.script != nil:
	case m.pausedUntil.After(now):
		soon(m.pausedUntil) // whatever is due waits until then
	case m.phase == live:
		soon(m.refreshAt)
		if m.ackedDirty() {
			soon(m.ackedAt())
		}
	}
	return first
}
