package relay

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// Config is what a relay can be told. Zero values mean the defaults.
type Config struct {
	// Name of this relay, unique among those that run at the same time: a start
	// under the same name supersedes the one that ran before. Required.
	Name string
	// Partitions of the outbox, the same number in every relay. Default 1: one
	// order for everything, further relays stand by.
	Partitions int
	// NotifyEnabled sends what finds nobody connected to the notification stream.
	// False: such pairs are counted and settled.
	NotifyEnabled bool

	// BatchSize is the greatest number of events that are routed at a time.
	// Default 512. Nothing waits for a batch to fill.
	BatchSize int

	// Lease is how long a partition stays ours without a renewal. Default 5 s;
	// more than three times Renew.
	Lease time.Duration
	// Renew is the pace of renewals. Default 1 s.
	Renew time.Duration
	// Look is the pace of the one look at leases and instances. Default 1 s.
	Look time.Duration

	// Tick is the time between two slots of a checkpoint. Default 5 s.
	Tick time.Duration
	// Copy is the pace of copies of the marker to MongoDB. Default 1 s; at most Tick.
	Copy time.Duration
	// RedisLoss is the most recent work that Redis may lose in a failover or a
	// restart. Default 15 s. Every taking of a lease goes so far back.
	RedisLoss time.Duration
	// InboxMaxAge is the longest that an event waits in an inbox. Default 5 min.
	// After Redis came back empty the relay goes so far back.
	InboxMaxAge time.Duration
	// ScanMargin is how far before its last known position a scan begins. Default
	// 15 min: longer than any transaction lives, clock skew included.
	ScanMargin time.Duration

	// ProbeEvery is the time between two probes of a partition. Default 10 s.
	ProbeEvery time.Duration
	// ProbeWithin is how soon a probe has to come back on the stream. Default 3 s;
	// less than ProbeEvery.
	ProbeWithin time.Duration

	// Retention is how long events stay in the outbox after they were routed,
	// counted in time that relays worked. Default 24 h, the most that a checkpoint
	// reaches back.
	Retention time.Duration
	// RetentionEvery is the time between two deletions. Default 1 h.
	RetentionEvery time.Duration

	// Logger; nil: none.
	Logger *slog.Logger
	// Metrics are registered here, for one relay a registry; nil: none.
	Metrics prometheus.Registerer
}

// retentionMost is what the hourly slots of a checkpoint reach back.
const retentionMost = 24 * time.Hour

func (c Config) withDefaults() Config {
	orInt(&c.Partitions, 1)
	orInt(&c.BatchSize, 512)
	orTime(&c.Lease, 5*time.Second)
	orTime(&c.Renew, time.Second)
	orTime(&c.Look, time.Second)
	orTime(&c.Tick, 5*time.Second)
	orTime(&c.Copy, time.Second)
	orTime(&c.RedisLoss, 15*time.Second)
	orTime(&c.InboxMaxAge, 5*time.Minute)
	orTime(&c.ScanMargin, 15*time.Minute)
	orTime(&c.ProbeEvery, 10*time.Second)
	orTime(&c.ProbeWithin, 3*time.Second)
	orTime(&c.Retention, retentionMost)
	orTime(&c.RetentionEvery, time.Hour)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func orInt(v *int, def int) {
	if *v == 0 {
		*v = def
	}
}

func orTime(v *time.Duration, def time.Duration) {
	if *v == 0 {
		*v = def
	}
}

// Validate reports everything that is wrong with c, defaults filled in.
func (c Config) Validate() error {
	c = c.withDefaults()
	_, nameErr := protocol.ParseInstanceName(c.Name)
	return errors.Join(
		wrong(nameErr != nil, "name: %v", nameErr),
		wrong(c.Partitions < 1 || c.Partitions > maxPartitions, "partitions: %d is not 1 to %d", c.Partitions, maxPartitions),
		wrong(c.BatchSize < 1, "batch size: %d is not positive", c.BatchSize),
		wrong(c.Lease <= 3*c.Renew, "lease: %v is not more than three renewals of %v", c.Lease, c.Renew),
		wrong(c.Copy > c.Tick, "copy: %v is more than a tick, %v, and slots are written with copies", c.Copy, c.Tick),
		wrong(c.ProbeWithin >= c.ProbeEvery, "probe within: %v is not less than its pace of %v", c.ProbeWithin, c.ProbeEvery),
		wrong(c.Retention > retentionMost, "retention: %v is more than a checkpoint reaches back, %v", c.Retention, retentionMost),
		wrong(c.Retention < c.InboxMaxAge, "retention: %v is less than what a loss of redis needs again, %v", c.Retention, c.InboxMaxAge),
		c.validatePaces(),
	)
}

func (c Config) validatePaces() error {
	var errs []error
	for name, d := range map[string]time.Duration{
		"renew": c.Renew, "look": c.Look, "tick": c.Tick, "copy": c.Copy, "redis loss": c.RedisLoss,
		"inbox max age": c.InboxMaxAge, "scan margin": c.ScanMargin, "probe within": c.ProbeWithin,
		"retention every": c.RetentionEvery,
	} {
		errs = append(errs, wrong(d < 0, "%s: %v is negative", name, d))
	}
	return errors.Join(errs...)
}

// maxPartitions bounds what one look asks Redis for.
const maxPartitions = 1024

func wrong(is bool, format string, args ...any) error {
	if !is {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// ticks is how many ticks back a place lies that is at least d of work away: one
// more than d holds, because the tick under way is of any age.
func (c Config) ticks(d time.Duration) int64 {
	return int64((d+c.Tick-1)/c.Tick) + 1
}

// lossTicks is the rewind at every taking of a lease: 4 by default.
func (c Config) lossTicks() int64 { return c.ticks(c.RedisLoss) }

// inboxTicks is the rewind after Redis came back empty: 61 by default.
func (c Config) inboxTicks() int64 { return c.ticks(c.InboxMaxAge) }
