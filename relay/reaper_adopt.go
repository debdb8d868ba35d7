package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// adoptionPace says when inboxes without a lease are looked for.
type adoptionPace struct {
	again time.Duration // after the first time
	then  time.Duration // after each further one
	pause time.Duration // between two parts of the keys: looking for them loads nobody
}

// keepAdopting gives inboxes without a lease an ended one, so that they are reaped:
// when Redis went back to an older state, or somebody's XADD made one of an id that
// was reaped. The relay that holds partition 0 does it, whenever it took that anew
// (after a trouble of Redis it always does), once more a while later, and now and
// then.
func (r *reaper) keepAdopting(ctx context.Context, pool redis.UniversalClient) {
	var plan adoptionPlan
	var bad trouble
	for pauseFor(ctx, r.cfg.Look) {
		if !plan.due(time.Now(), r.fence()) {
			continue
		}
		err := r.adopt(ctx, pool)
		if err != nil && ctx.Err() == nil {
			bad.begin(r.log, "look for inboxes without a lease", err)
			continue // it stays due
		}
		bad.end(r.log, "look for inboxes without a lease")
		plan.done(time.Now(), r.pace)
	}
}

// adoptionPlan is when the next time is.
type adoptionPlan struct {
	fence int64 // of the holding of partition 0 that the plan is for
	times int   // done under it
	next  time.Time
}

// due says whether it is time. Another fence is another holding, and begins anew.
func (p *adoptionPlan) due(now time.Time, fence int64) bool {
	if fence != p.fence {
		*p = adoptionPlan{fence: fence, next: now}
	}
	return fence != 0 && !now.Before(p.next)
}

func (p *adoptionPlan) done(now time.Time, pace adoptionPace) {
	p.times++
	if p.next = now.Add(pace.then); p.times == 1 {
		p.next = now.Add(pace.again)
	}
}

// adopt looks once through all keys.
func (r *reaper) adopt(ctx context.Context, pool redis.UniversalClient) error {
	leases := heartbeat.New(pool, heartbeat.SocketInstances, r.cfg.pace())
	for cursor, more := uint64(0), true; more; more = cursor != 0 && pauseFor(ctx, r.pace.pause) {
		ids, next, err := inbox.Inboxes(ctx, pool, cursor)
		if err != nil {
			return err
		}
		if err := r.adoptFrom(ctx, leases, ids); err != nil {
			return err
		}
		cursor = next
	}
	return ctx.Err()
}

// adoptFrom ends the leases that some inboxes lack. An instance has its lease before
// its inbox, and keeps it longer: of an inbox that was seen before the list was made,
// a lease that isn't in the list is none.
func (r *reaper) adoptFrom(ctx context.Context, leases *heartbeat.Leases, ids []protocol.InstanceID) error {
	if len(ids) == 0 {
		return nil
	}
	list, err := leases.List(ctx)
	if err != nil {
		return fmt.Errorf("look for inboxes: %w", err)
	}
	has := make(map[protocol.InstanceID]bool, len(list))
	for _, l := range list {
		has[l.ID] = true
	}
	for _, id := range ids {
		if has[id] {
			continue
		}
		if err := leases.End(ctx, id); err != nil {
			return fmt.Errorf("adopt inbox: %w", err)
		}
		r.metrics.adopted.Inc()
		r.log.Warn("found an inbox without a lease; it will be reaped", keyInstance, id)
	}
	return nil
}

// fenceOfFirst is the fence of partition 0; 0: this relay doesn't hold it.
func (r *Relay) fenceOfFirst() int64 {
	r.mu.Lock()
	p := r.held[0]
	r.mu.Unlock()
	if p == nil {
		return 0
	}
	p.view.mu.Lock()
	defer p.view.mu.Unlock()
	return p.view.fence
}
