package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/lastmile-gateway/lastmile/outbox"
)

// keepRetention deletes old events now and then, in the relay that holds partition
// 0. The first time comes a while after the start.
func (r *Relay) keepRetention(ctx context.Context) {
	for pauseFor(ctx, r.cfg.RetentionEvery) {
		if !r.holds(0) {
			continue
		}
		n, err := r.retain(ctx)
		if err != nil && ctx.Err() == nil {
			r.log.Warn("delete old events", keyError, err)
		}
		if n > 0 {
			r.log.Info("deleted old events", keyCount, n)
		}
	}
}

// retain deletes what every partition has left behind by the retention, counted in
// ticks: time in which nobody worked doesn't count. It does not wait for
// notifications, whose entries hold the body.
func (r *Relay) retain(ctx context.Context) (int, error) {
	before, err := r.retainedFrom(ctx)
	if err != nil || before.IsZero() {
		return 0, err
	}
	return r.store.Retain(ctx, before)
}

// retainedFrom is the time before which nothing is needed any more; zero: there is
// a partition whose slots do not reach so far yet.
func (r *Relay) retainedFrom(ctx context.Context) (time.Time, error) {
	var before time.Time
	for n := range r.cfg.Partitions {
		cp, err := r.store.Checkpoint(ctx, n)
		if err != nil {
			return time.Time{}, fmt.Errorf("find what is old: %w", err)
		}
		place, ok := longAgo(cp, int64(r.cfg.Retention/r.cfg.Tick))
		if !ok {
			return time.Time{}, nil
		}
		if at := commitTime(place.Position).Add(-r.cfg.ScanMargin); before.IsZero() || at.Before(before) {
			before = at
		}
	}
	return before, nil
}

// longAgo is the place n ticks back, where there is a slot as old as that.
func longAgo(cp *outbox.Checkpoint, n int64) (outbox.Marker, bool) {
	if markerOf(cp) == nil {
		return outbox.Marker{}, false
	}
	for _, slot := range slots(cp) {
		if slot.Tick <= cp.Marker.Tick-n {
			return cp.Back(*cp.Marker, n), true
		}
	}
	return outbox.Marker{}, false
}
