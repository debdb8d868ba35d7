package relay

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// Reaper is a reaper without its relay.
type Reaper struct {
	r    *reaper
	pool redis.UniversalClient
}

// NewReaper makes one over a pool, for locks and adoption, and what dials the
// connection of each reap.
func NewReaper(cfg Config, pool redis.UniversalClient, dial func(func()) redis.UniversalClient, by protocol.InstanceID, fence func() int64) *Reaper {
	r := newReaper(cfg.withDefaults(), dial, func() protocol.InstanceID { return by }, fence)
	r.pace = adoptionPace{again: 300 * time.Millisecond, then: time.Hour, pause: time.Millisecond}
	return &Reaper{r: r, pool: pool}
}

// Reap is one reap.
func (r *Reaper) Reap(ctx context.Context, l heartbeat.Lease) error { return r.r.reap(ctx, r.pool, l) }

// Saw hands a look over to Run.
func (r *Reaper) Saw(leases []heartbeat.Lease) { r.r.saw(leases) }

// Run reaps what looks show.
func (r *Reaper) Run(ctx context.Context) { r.r.run(ctx, r.pool) }

// Adopt looks once for inboxes without a lease.
func (r *Reaper) Adopt(ctx context.Context) error { return r.r.adopt(ctx, r.pool) }

// Sightings judges looks, at moments that a test gives.
type Sightings struct{ s *sightings }

// NewSightings judges by two looks that are so far apart, and that long a lease.
func NewSightings(apart, lease time.Duration) Sightings {
	return Sightings{newSightings(apart, lease)}
}

// Look answers what is due.
func (s Sightings) Look(at time.Time, leases ...heartbeat.Lease) []protocol.InstanceID {
	var ids []protocol.InstanceID
	for _, l := range s.s.look(at, leases) {
		ids = append(ids, l.ID)
	}
	return ids
}

// Exported for tests.
var (
	ReapKey   = reapKey
	ErrOthers = errOthers
)
