package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lastmile-gateway/lastmile/outbox"
)

// acquire takes the lease: its fence is above all that Redis and MongoDB have seen.
// It answers the marker that Redis holds.
func (t *tenure) acquire(work context.Context) (*outbox.Marker, error) {
	ctx, cancel := t.reading(work)
	defer cancel()
	above, err := t.r.store.Fence(ctx, t.n)
	if err != nil {
		return nil, fmt.Errorf("take partition: %w", err)
	}
	l, marker, err := takeLease(ctx, t.conn, t.n, t.r.owner(), t.r.cfg.Lease, above)
	if err != nil {
		return nil, err
	}
	t.lease = l
	if err := t.fence(ctx); err != nil {
		t.release()
		return nil, err
	}
	t.view.took(l.fence)
	t.r.metrics.takeovers.Inc()
	return marker, nil
}

// fence takes the fence in MongoDB too. A checkpoint that was written for another
// number of partitions is not this relay's to go on from.
func (t *tenure) fence(ctx context.Context) error {
	l, err := t.r.readLayout(ctx)
	if err != nil {
		return err
	}
	if !l.fits(t.r.cfg.Partitions) {
		t.r.fitted.Store(false)
		return fmt.Errorf("%w: %d", errOtherCount, l.n)
	}
	if err := t.r.store.TakeFence(ctx, t.n, t.r.cfg.Partitions, t.lease.fence); err != nil {
		return fmt.Errorf("take fence: %w", err) // a greater one: the next try is above it
	}
	if t.checkpoint, err = t.r.store.Checkpoint(ctx, t.n); err != nil {
		return fmt.Errorf("take fence: %w", err)
	}
	return nil
}

// otherCollection is no collection's UUID. A marker in Redis without one in MongoDB,
// where it is written first, belongs to a MongoDB that is no more.
const otherCollection = "none"

// settle finds the place to go on from. What Redis and MongoDB hold tells which of
// three things happened:
//
//   - Redis has a marker, maybe from an old dump: back by what Redis may have lost;
//   - only MongoDB has one: Redis is empty; back by what may have waited in inboxes;
//   - neither: a first start; serve begins with a scan.
//
// When it returns, the rewound place is written, nothing is routed yet, and
// everything committed before is to be routed carefully.
func (t *tenure) settle(work context.Context, inRedis *outbox.Marker) (err error) {
	ctx, cancel := t.reading(work)
	defer cancel()
	if err := t.reg.Load(ctx, t.conn); err != nil {
		return fmt.Errorf("%w: %w", errRedis, err)
	}
	if t.careful, err = t.now(ctx); err != nil {
		return err
	}
	inMongo := markerOf(t.checkpoint)
	switch {
	case inMongo != nil:
		t.collection = t.checkpoint.Collection
	case inRedis != nil:
		t.collection = otherCollection
	}
	t.tick = newestTick(t.checkpoint, inRedis)
	t.log.Info("took partition", keyFence, t.lease.fence, "redis", inRedis != nil, "mongodb", inMongo != nil)
	switch {
	case inRedis != nil:
		return t.rewind(ctx, back(t.checkpoint, *inRedis, t.r.cfg.lossTicks()))
	case inMongo != nil:
		return t.resumeEmpty(work, *inMongo)
	default:
		return nil
	}
}

func (t *tenure) now(ctx context.Context) (outbox.Timestamp, error) {
	now, err := t.r.store.Now(ctx)
	if err != nil {
		return now, fmt.Errorf("read mongodb's time: %w", err)
	}
	return now, nil
}

// markerOf is the marker of a checkpoint; nil: none.
func markerOf(cp *outbox.Checkpoint) *outbox.Marker {
	if cp == nil || cp.Marker == nil || cp.Marker.Position.IsZero() {
		return nil
	}
	return cp.Marker
}

// back is the place n ticks back from a marker, as far as the slots reach.
func back(cp *outbox.Checkpoint, from outbox.Marker, n int64) outbox.Marker {
	if cp == nil {
		return from
	}
	return cp.Back(from, n)
}

// newestTick is the greatest tick that was ever given: ticks count on from there,
// whatever place the work goes back to, so that no slot hides a rewind.
func newestTick(cp *outbox.Checkpoint, inRedis *outbox.Marker) int64 {
	newest := int64(0)
	if inRedis != nil {
		newest = inRedis.Tick
	}
	if cp == nil {
		return newest
	}
	if cp.Marker != nil {
		newest = max(newest, cp.Marker.Tick)
	}
	for _, slot := range slots(cp) {
		newest = max(newest, slot.Tick)
	}
	return newest
}

func slots(cp *outbox.Checkpoint) []outbox.Slot {
	all := make([]outbox.Slot, 0, len(cp.Ring)+len(cp.Hourly))
	return append(append(all, cp.Ring...), cp.Hourly...)
}

// rewind makes a place the marker: a slot of its own first, which every later
// rewind sees, then the marker in Redis, both before anything is routed.
func (t *tenure) rewind(ctx context.Context, to outbox.Marker) error {
	t.marker, t.placed = to, true
	if err := t.writeSlot(ctx); err != nil {
		return t.notSaved("write slot of the rewind", err)
	}
	if err := t.mark(ctx); err != nil {
		return err
	}
	t.log.Info("resume, carefully", keyPlace, formatPosition(to.Position), "from", commitTime(to.Position).UTC())
	return nil
}

func (t *tenure) notSaved(what string, err error) error {
	if errors.Is(err, outbox.ErrFenced) {
		err = errFenced
	}
	return fmt.Errorf("%s: %w", what, err)
}

// resumeEmpty goes on after Redis came back empty: when the socket servers that
// were alive are back, so that events find their users.
func (t *tenure) resumeEmpty(work context.Context, marker outbox.Marker) error {
	ctx, cancel := t.reading(work)
	defer cancel()
	t.r.metrics.redisEmpty.Inc()
	t.log.Warn("redis holds no marker: it is empty; going back by what may have waited in inboxes")
	t.view.set(stateWaiting)
	t.awaitInstances(ctx)
	to := back(t.checkpoint, marker, t.r.cfg.inboxTicks())
	if t.r.cfg.NotifyEnabled {
		if err := t.notifyLost(work, to); err != nil {
			return err
		}
	}
	return t.rewind(ctx, to)
}

// awaitInstances waits until the socket servers that this relay last saw alive are
// back, by name; a lease at most, and a lease where it saw none.
func (t *tenure) awaitInstances(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, t.r.cfg.Lease)
	defer cancel()
	wanted := t.r.instances.recent()
	for !t.haveBack(ctx, wanted) && pauseFor(ctx, min(t.r.cfg.Look, 200*time.Millisecond)) {
	}
}

func (t *tenure) haveBack(ctx context.Context, wanted []string) bool {
	if len(wanted) == 0 {
		return false
	}
	running, err := t.r.instances.running(ctx)
	if err != nil {
		return false
	}
	for _, name := range wanted {
		if !running[name] {
			return false
		}
	}
	return true
}
