package relay

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// NotifierConfig is what a notifier can be told. Zero values mean the defaults.
type NotifierConfig struct {
	// Name of this notifier, unique among those that run at the same time: a start
	// under the same name supersedes the one that ran before. Required; 55 bytes.
	Name string

	// Grace is how long a pair waits from the moment it was handed over, for its
	// user to come back. Default 10 s, longer than a reconnect; negative: none.
	Grace time.Duration
	// Limit is how long after its handing over a pair is tried. Default 20 h, and
	// no more: less than MarkAge. Then it goes to the dead letters.
	Limit time.Duration
	// MarkAge is how long it is remembered that a pair was notified. Default 24 h:
	// as long as events stay in the outbox.
	MarkAge time.Duration

	// BackoffFirst is the cap of the pause after a first failure; it doubles up to
	// BackoffMost. Defaults 1 s and 5 min.
	BackoffFirst, BackoffMost time.Duration
	// SendTimeout bounds one call of the sink. Default 10 s; less than a third of
	// ClaimIdle is good, since an entry has to be held meanwhile.
	SendTimeout time.Duration
	// Concurrency is the number of calls of the sink at a time. Default 16.
	Concurrency int

	// MaxHeld and MaxHeldBytes bound what is read and not yet done. Defaults 1,000
	// entries, 64 MiB. At the bound nothing more is read.
	MaxHeld      int
	MaxHeldBytes int
	// MaxPending is the number of waiting entries from which on there is an alarm.
	// Default 100,000.
	MaxPending int64

	// ClaimIdle is how long an entry goes without a renewal before another notifier
	// takes it. Default 30 s, the same in all notifiers.
	ClaimIdle time.Duration
	// Renew is the pace of renewals, and of looks for what others left. Default
	// 10 s, at most a third of ClaimIdle.
	Renew time.Duration
	// WaitEvery is how often a pair that waits for another entry is looked at.
	// Default 5 s.
	WaitEvery time.Duration

	// Lease and Beat: how the notifier's lease is kept. Defaults 5 s and 1 s, the
	// same as the relays'.
	Lease, Beat time.Duration

	// Logger; nil: none.
	Logger *slog.Logger
	// Metrics are registered here, for one notifier a registry; nil: none.
	Metrics prometheus.Registerer
}

const (
	limitMost = 20 * time.Hour
	// readBlock is how long a read waits; no block is for ever.
	readBlock = 2 * time.Second
	// readMost is how many entries one read asks for.
	readMost = 64
	// sweepIdle is how long a notifier's traces stay in the group after its end.
	sweepIdle = time.Hour
	// noReader is how long nobody may read before there is an alarm.
	noReader = time.Minute
)

func (c NotifierConfig) withDefaults() NotifierConfig {
	orTime(&c.Grace, 10*time.Second)
	orTime(&c.Limit, limitMost)
	orTime(&c.MarkAge, retentionMost)
	orTime(&c.BackoffFirst, time.Second)
	orTime(&c.BackoffMost, 5*time.Minute)
	orTime(&c.SendTimeout, 10*time.Second)
	orInt(&c.Concurrency, 16)
	orInt(&c.MaxHeld, 1000)
	orInt(&c.MaxHeldBytes, 64<<20)
	if c.MaxPending == 0 {
		c.MaxPending = 100_000
	}
	orTime(&c.ClaimIdle, 30*time.Second)
	orTime(&c.Renew, 10*time.Second)
	orTime(&c.WaitEvery, 5*time.Second)
	orTime(&c.Lease, 5*time.Second)
	orTime(&c.Beat, time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports everything that is wrong with c, defaults filled in.
func (c NotifierConfig) Validate() error {
	c = c.withDefaults()
	_, nameErr := protocol.ParseInstanceName(NotifierPrefix + c.Name)
	if nameErr == nil && c.Name == "" {
		nameErr = errors.New("is empty")
	}
	return errors.Join(
		wrong(nameErr != nil, "name: %v", nameErr),
		wrong(c.Limit < 0 || c.Limit > limitMost, "limit: %v is not up to %v", c.Limit, limitMost),
		wrong(c.MarkAge <= c.Limit, "mark age: %v is not more than the limit of %v: a pair could be notified again", c.MarkAge, c.Limit),
		wrong(c.Grace >= c.Limit, "grace: %v is not less than the limit of %v", c.Grace, c.Limit),
		wrong(c.BackoffFirst < 0 || c.BackoffMost < c.BackoffFirst, "backoff: from %v to %v", c.BackoffFirst, c.BackoffMost),
		wrong(c.SendTimeout < 0, "send timeout: %v is negative", c.SendTimeout),
		wrong(c.Concurrency < 1, "concurrency: %d is not positive", c.Concurrency),
		wrong(c.MaxHeld < 1, "max held: %d is not positive", c.MaxHeld),
		wrong(c.MaxHeldBytes < 1, "max held bytes: %d is not positive", c.MaxHeldBytes),
		wrong(c.MaxPending < 1, "max pending: %d is not positive", c.MaxPending),
		wrong(c.Renew <= 0 || c.ClaimIdle < 3*c.Renew, "claim idle: %v is less than three renewals of %v", c.ClaimIdle, c.Renew),
		wrong(c.WaitEvery <= 0, "wait every: %v is not positive", c.WaitEvery),
		heartbeat.Config{Lease: c.Lease, Every: c.Beat}.Validate(),
	)
}

// stale is the age of a renewal from which on a held entry is no longer trusted:
// this process may have been frozen, and another may have taken the entry.
func (c NotifierConfig) stale() time.Duration { return c.ClaimIdle * 2 / 3 }
