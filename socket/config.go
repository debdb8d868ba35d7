package socket

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// MinTokenSecret is the least length of Config.TokenSecret in bytes. RFC 7518, section 3.2, asks of HS256 for
// 32; shorter ones are in use in applications that a server has to share its secret with.
const MinTokenSecret = 16

// shortAPIKey is the length below which an API key is worth a warning.
const shortAPIKey = 16

// Config configures a Server. The zero value of each field stands for its default.
type Config struct {
	// Name names the server in leases, inboxes and locations: 1 to 64 of A-Z a-z 0-9 . _ : -.
	// Required. A second server started under the same name supersedes the first.
	Name string
	// Address is where others see the public listener; for sight only.
	Address string
	// Version is the program's version; for sight only.
	Version string

	// TokenSecret signs the tokens of clients (HS256, HS384, HS512). Required.
	TokenSecret []byte
	// APIKeys are accepted by POST /v1/events. None: every such request is refused.
	APIKeys []string
	// Origins are further origins that may open a WebSocket, matched as path.Match does, against
	// the origin's host or, where the pattern has "://", against scheme://host. The request's own
	// host is always allowed, and so are clients that send no Origin (those are no browsers).
	Origins []string

	// MaxConnections bounds the WebSockets of this server; more are closed with 1013. Default 100,000.
	MaxConnections int
	// MaxSessions bounds the sessions of one user on all servers; more are closed with 4504. Default 32.
	MaxSessions int
	// HelloTimeout is how long a client may take for its hello (4502 after it). Default 10 s.
	HelloTimeout time.Duration
	// ResumeWait is how long a client that sent its token with the upgrade may take to say where
	// it resumes; after it the session starts afresh. Default 1 s.
	ResumeWait time.Duration
	// ConnectTimeout is how long a session may take from hello to welcome (1013 after it). Default 8 s,
	// below the 10 s after which clients give up.
	ConnectTimeout time.Duration
	// PingInterval is the time between two WebSocket pings, and told to clients as the silence after
	// which they ping. Default 25 s: middle boxes cut silent connections after 60 s.
	PingInterval time.Duration
	// PongTimeout is how long a pong may take (4003 after it). Default 10 s.
	PongTimeout time.Duration
	// WriteTimeout bounds one write to a client. Default 10 s.
	WriteTimeout time.Duration
	// AckTimeout is how long after its write an event may wait for the client's ack, and a welcome
	// for its own (4001 after it). Default 20 s.
	AckTimeout time.Duration
	// ReloadTimeout is AckTimeout for a welcome with recovered false. Default 60 s.
	ReloadTimeout time.Duration
	// RefreshInterval is the time between two looks of a session at its registration. Default 30 s;
	// must be below ReplayWindow.
	RefreshInterval time.Duration
	// QueueEvents and QueueBytes bound what waits to be written to one client (4000 past it).
	// Defaults 8,192 and 8 MiB.
	QueueEvents int
	QueueBytes  int
	// PublishQueue bounds the publish frames of one client that wait for their commit
	// (rate_limited past it). Default 64.
	PublishQueue int

	// InboxEntries and InboxBytes bound what is read from the inbox and not settled. At the bound the
	// sessions that hold the oldest pairs are closed (4001). Defaults 4,096 and 64 MiB.
	InboxEntries int
	InboxBytes   int
	// InboxGrace is how long a full tracker waits for acks before it closes anybody. Default 1 s.
	InboxGrace time.Duration
	// TakeLostInterval is the time between two looks for entries whose reply was lost. Default 30 s.
	TakeLostInterval time.Duration
	// NotifyEnabled says whether pairs that nobody can take go to notifications.
	NotifyEnabled bool
	// NotifyAfter is the age since its first routing at which a pair goes to notifications whatever
	// sessions there are. Default 4 min; shorter than the 5 min that a pair may wait in an inbox.
	NotifyAfter time.Duration

	// Lease is how long this server counts as running after a beat; BeatInterval the time between
	// two. Defaults 5 s and 1 s; the lease must be more than three beats long.
	Lease        time.Duration
	BeatInterval time.Duration
	// CutOff is how long Redis may be silent before the server is not ready; LongCutOff before it
	// also asks its clients to move. Defaults 4 s and 15 s.
	CutOff     time.Duration
	LongCutOff time.Duration
	// LoopStall is how long the inbox loop may go without progress before the beat stops. Default 6 s;
	// must be above the 2 s that one read may block.
	LoopStall time.Duration
	// ProbeInterval is the time between two probes into the own inbox; ProbeTimeout how long one may
	// take before the server is not ready. Defaults 10 s and 3 s.
	ProbeInterval time.Duration
	ProbeTimeout  time.Duration

	// DrainDelay is how long a server that stops goes on before it says goaway, for balancers to
	// notice that it is not ready. Default 0.
	DrainDelay time.Duration
	// DrainWindow is the time over which the clients of a server that stops are closed. Default 5 s.
	// A server without clients doesn't wait for it.
	DrainWindow time.Duration

	// PoolSize is the number of shared connections to Redis. Default 10.
	PoolSize int
	// Workers bounds the scripts that run at the same time; four times as many jobs wait for the outbox.
	// Default 4 for each connection of the pool.
	Workers int
	// ReplayWindow is how long a user's log outlives his last session. Default 10 min.
	ReplayWindow time.Duration
	// TokenMaxAge is the longest life of a token. Default 24 h.
	TokenMaxAge time.Duration

	// Logger takes what operators should know; nil: nothing is logged.
	Logger *slog.Logger
	// Metrics takes the server's metrics; nil: none.
	Metrics prometheus.Registerer
}

func or[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c Config) withDefaults() Config {
	or(&c.MaxConnections, 100_000)
	or(&c.MaxSessions, 32)
	or(&c.HelloTimeout, 10*time.Second)
	or(&c.ResumeWait, time.Second)
	or(&c.ConnectTimeout, 8*time.Second)
	or(&c.PingInterval, 25*time.Second)
	or(&c.PongTimeout, 10*time.Second)
	or(&c.WriteTimeout, 10*time.Second)
	or(&c.AckTimeout, 20*time.Second)
	or(&c.ReloadTimeout, 60*time.Second)
	or(&c.RefreshInterval, 30*time.Second)
	or(&c.QueueEvents, 8192)
	or(&c.QueueBytes, 8<<20)
	or(&c.PublishQueue, 64)
	or(&c.InboxEntries, 4096)
	or(&c.InboxBytes, 64<<20)
	or(&c.InboxGrace, time.Second)
	or(&c.TakeLostInterval, 30*time.Second)
	or(&c.NotifyAfter, 4*time.Minute)
	or(&c.Lease, 5*time.Second)
	or(&c.BeatInterval, time.Second)
	or(&c.CutOff, 4*time.Second)
	or(&c.LongCutOff, 15*time.Second)
	or(&c.LoopStall, 6*time.Second)
	or(&c.ProbeInterval, 10*time.Second)
	or(&c.ProbeTimeout, 3*time.Second)
	or(&c.DrainWindow, 5*time.Second)
	or(&c.PoolSize, 10)
	or(&c.Workers, 4*c.PoolSize)
	or(&c.ReplayWindow, 10*time.Minute)
	or(&c.TokenMaxAge, 24*time.Hour)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate names everything that is wrong with c, after defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if _, err := protocol.ParseInstanceName(c.Name); err != nil {
		errs = append(errs, fmt.Errorf("Name: %w", err))
	}
	check(len(c.TokenSecret) >= MinTokenSecret, "TokenSecret: %d bytes; give at least %d, better 32 random ones", len(c.TokenSecret), MinTokenSecret)
	for i, key := range c.APIKeys {
		check(key != "", "APIKeys[%d]: empty", i)
	}
	check(c.Lease > 3*c.BeatInterval, "Lease: %v; must be more than three times BeatInterval (%v)", c.Lease, c.BeatInterval)
	check(c.RefreshInterval < c.ReplayWindow, "RefreshInterval: %v; must be below ReplayWindow (%v)", c.RefreshInterval, c.ReplayWindow)
	check(c.LoopStall > readBlock, "LoopStall: %v; must be above the %v of a blocking read", c.LoopStall, readBlock)
	check(c.NotifyAfter < 5*time.Minute, "NotifyAfter: %v; must be below the 5m that a pair may wait in an inbox", c.NotifyAfter)
	check(c.PingInterval < time.Minute, "PingInterval: %v; must be below the minute after which proxies cut", c.PingInterval)
	for name, n := range map[string]int{
		"MaxConnections": c.MaxConnections, "MaxSessions": c.MaxSessions, "QueueEvents": c.QueueEvents,
		"QueueBytes": c.QueueBytes, "InboxEntries": c.InboxEntries, "InboxBytes": c.InboxBytes,
		"PoolSize": c.PoolSize, "Workers": c.Workers, "PublishQueue": c.PublishQueue,
	} {
		check(n > 0, "%s: %d; must be positive", name, n)
	}
	return errors.Join(errs...)
}
