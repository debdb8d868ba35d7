package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/outbox"
)

// layout is into how many partitions the outbox is divided, as MongoDB has it.
type layout struct {
	checkpoints []*outbox.Checkpoint
	n           int  // 0: never divided
	whole       bool // every checkpoint says so; false: a change stopped in the middle
}

func (r *Relay) readLayout(ctx context.Context) (layout, error) {
	all, err := r.store.Checkpoints(ctx)
	if err != nil {
		return layout{}, fmt.Errorf("read number of partitions: %w", err)
	}
	l := layout{checkpoints: all, whole: true}
	for _, cp := range all {
		if l.n == 0 {
			l.n = cp.Partitions
		}
		if cp.Partitions != l.n || cp.Partition >= cp.Partitions && markerOf(cp) != nil {
			l.whole = false
		}
	}
	return l, nil
}

// fits says whether a relay of n partitions can work on it.
func (l layout) fits(n int) bool { return l.n == 0 || l.whole && l.n == n }

// size is how many partitions it has leases for.
func (l layout) size() int {
	size := l.n
	for _, cp := range l.checkpoints {
		size = max(size, cp.Partitions, cp.Partition+1)
	}
	return size
}

// quietSince is since when no relay holds any partition of another layout.
type quietSince struct{ at time.Time }

// agreed says whether the outbox is divided as this relay was told to. Where it is
// not, it waits until no other relay works, and then divides it anew.
func (r *Relay) agreed(ctx context.Context, pool redis.UniversalClient, quiet *quietSince) (bool, error) {
	if r.fitted.Load() || len(r.holding()) > 0 {
		return true, nil // every taking of a lease looks again
	}
	l, err := r.readLayout(ctx)
	if err != nil {
		return false, err
	}
	if l.fits(r.cfg.Partitions) {
		r.fitted.Store(true)
		r.waits("")
		return true, nil
	}
	r.waits(fmt.Sprintf("the outbox is divided into %d partitions, and this relay was started with %d: "+
		"it waits until no other relay works, and divides it anew then", l.n, r.cfg.Partitions))
	busy, err := r.busy(ctx, pool, l)
	if err != nil || busy {
		quiet.at = time.Time{}
		return false, err
	}
	if quiet.at.IsZero() {
		quiet.at = time.Now()
	}
	if time.Since(quiet.at) <= r.cfg.Lease { // a relay of the old number would have taken one by now
		return false, nil
	}
	return false, r.divide(ctx, pool, l)
}

func (r *Relay) waits(why string) {
	r.mu.Lock()
	before := r.waiting
	r.waiting = why
	r.mu.Unlock()
	if why != "" && why != before {
		r.log.Warn(why)
	}
}

func (r *Relay) busy(ctx context.Context, pool redis.UniversalClient, l layout) (bool, error) {
	owners, err := readOwners(ctx, pool, l.size())
	if err != nil {
		return false, err
	}
	for _, o := range owners {
		if o.Running && o.ID != r.owner() {
			return true, nil
		}
	}
	return false, nil
}

// division is one change of the number of partitions under way.
type division struct {
	r      *Relay
	rdb    redis.UniversalClient
	leases []*lease
	place  outbox.Marker // where all new partitions go on
	since  time.Time
	old    int
}

// divide writes the new partitions' checkpoints and markers at the smallest place
// that any old one may have to go back to, all under leases of all partitions, old
// and new. The number itself is written last: a change that stops in the middle is
// done again from its beginning.
func (r *Relay) divide(ctx context.Context, pool redis.UniversalClient, l layout) error {
	d := &division{r: r, rdb: pool, old: l.n, place: smallestPlace(l, r.cfg.inboxTicks()), since: smallestSince(l)}
	defer d.release()
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return d.take(ctx, max(l.size(), r.cfg.Partitions)) },
		d.write, d.clear, d.number,
	} {
		if err := step(ctx); err != nil {
			if errors.Is(err, errHeld) {
				return nil // somebody works: wait on
			}
			return fmt.Errorf("divide outbox: %w", err)
		}
	}
	r.log.Info("outbox is divided anew", "partitions", r.cfg.Partitions, "before", d.old,
		keyPlace, formatPosition(d.place.Position))
	return nil
}

// smallestPlace is without a token: a stream of another partition has other ones.
func smallestPlace(l layout, ticks int64) outbox.Marker {
	var least outbox.Marker
	for _, cp := range l.checkpoints {
		marker := markerOf(cp)
		if marker == nil {
			continue
		}
		place := cp.Back(*marker, ticks)
		tick := max(least.Tick, newestTick(cp, nil))
		if least.Position.IsZero() || place.Position.Compare(least.Position) < 0 {
			least = place
		}
		least.Tick = tick
	}
	least.Token = nil
	return least
}

func smallestSince(l layout) time.Time {
	var least time.Time
	for _, cp := range l.checkpoints {
		if markerOf(cp) == nil {
			continue
		}
		if s := cp.NotificationsSince; !s.IsZero() && (least.IsZero() || s.Before(least)) {
			least = s
		}
	}
	return least
}

func (d *division) take(ctx context.Context, n int) error {
	for i := range n {
		above, err := d.r.store.Fence(ctx, i)
		if err != nil {
			return err
		}
		l, _, err := takeLease(ctx, d.rdb, i, d.r.owner(), d.r.cfg.Lease, above)
		if err != nil {
			return err
		}
		d.leases = append(d.leases, l)
		if err := d.r.store.TakeFence(ctx, i, d.old, l.fence); err != nil {
			return err
		}
	}
	return nil
}

// write writes the place into MongoDB and Redis for every new partition.
func (d *division) write(ctx context.Context) error {
	if d.place.Position.IsZero() {
		return nil // nothing was ever routed: each begins with a scan
	}
	for n, l := range d.leases[:d.r.cfg.Partitions] {
		if err := l.renew(ctx, d.rdb); err != nil {
			return err
		}
		m := d.place
		m.Tick++
		if err := d.r.store.SaveSlot(ctx, n, l.fence, outbox.Slot{Marker: m, Time: time.Now()}); err != nil {
			return err
		}
		if err := d.r.store.SaveMarker(ctx, n, l.fence, m, d.since); err != nil {
			return err
		}
		p := d.rdb.Pipeline()
		cmd := l.queueMark(ctx, p, m)
		if _, err := p.Exec(ctx); err != nil {
			return err
		}
		if err := marked(cmd); err != nil {
			return err
		}
	}
	return nil
}

// clear removes the markers of partitions that are no more: in MongoDB by one
// without a position, which is none. Their fences stay.
func (d *division) clear(ctx context.Context) error {
	for n := d.r.cfg.Partitions; n < len(d.leases); n++ {
		if err := d.rdb.HDel(ctx, partitionKey(n), "token", "position", "tick").Err(); err != nil {
			return err
		}
		if err := d.r.store.SaveMarker(ctx, n, d.leases[n].fence, outbox.Marker{}, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// number writes the new number, partition 0 last.
func (d *division) number(ctx context.Context) error {
	for n := len(d.leases) - 1; n >= 0; n-- {
		if err := d.r.store.TakeFence(ctx, n, d.r.cfg.Partitions, d.leases[n].fence+1); err != nil {
			return err
		}
	}
	return nil
}

func (d *division) release() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, l := range d.leases {
		_ = l.release(ctx, d.rdb) // else it ends by itself
	}
}
