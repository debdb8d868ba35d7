package relay

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// reapsAtOnce is how many dead instances one relay empties at a time: a big one does
// not hold up the others. Relays share the rest by the locks.
const reapsAtOnce = 4

// reaper empties the inboxes of dead socket servers. Every relay runs one.
type reaper struct {
	// fixed after construction
	cfg     Config
	log     *slog.Logger
	metrics *reaperMetrics
	dial    func(onDial func()) redis.UniversalClient // the connection of one reap
	by      func() protocol.InstanceID                // this relay
	fence   func() int64                              // of partition 0; 0: not held here
	pace    adoptionPace
	looks   chan glance // of one; the newest counts

	// owned by run
	seen *sightings

	mu    sync.Mutex
	tries map[protocol.InstanceID]*reapTry // under way, or to be done again
}

// glance is what one look showed.
type glance struct {
	at     time.Time
	leases []heartbeat.Lease
}

// reapTry is the state of one dead instance between looks.
type reapTry struct {
	busy bool
	next time.Time // not again before
	cap  time.Duration
	bad  trouble
}

func newReaper(cfg Config, dial func(func()) redis.UniversalClient, by func() protocol.InstanceID, fence func() int64) *reaper {
	return &reaper{
		cfg: cfg, log: cfg.Logger, metrics: newReaperMetrics(cfg.Metrics), dial: dial, by: by, fence: fence,
		pace:  adoptionPace{again: time.Minute, then: time.Hour, pause: 5 * time.Millisecond},
		looks: make(chan glance, 1),
		seen:  newSightings(max(cfg.Look, cfg.Renew), cfg.Lease),
		tries: make(map[protocol.InstanceID]*reapTry),
	}
}

// saw hands a look over. It never waits: a look that was not judged yet is replaced.
// It has one caller at a time.
func (r *reaper) saw(leases []heartbeat.Lease) {
	select {
	case <-r.looks:
	default:
	}
	r.looks <- glance{at: time.Now(), leases: leases}
}

// run reaps until ctx ends; pool is for locks, and for looking for inboxes without a
// lease. A reap that is cut off by the end is gone on with by the next reaper.
func (r *reaper) run(ctx context.Context, pool redis.UniversalClient) {
	var work, adoption errgroup.Group
	work.SetLimit(reapsAtOnce)
	adoption.Go(func() error { r.keepAdopting(ctx, pool); return nil })
	for ctx.Err() == nil {
		select {
		case g := <-r.looks:
			r.judge(ctx, pool, &work, g)
		case <-ctx.Done():
		}
	}
	_ = work.Wait()
	_ = adoption.Wait()
}

// judge begins what is to be reaped by now, as far as there is room: the rest comes
// with a later look.
func (r *reaper) judge(ctx context.Context, pool redis.UniversalClient, work *errgroup.Group, g glance) {
	due := r.seen.look(g.at, g.leases)
	r.forget(due)
	for _, l := range due {
		try := r.begin(l.ID, g.at)
		if try == nil {
			continue
		}
		if !work.TryGo(func() error {
			r.finish(ctx, l.ID, try, r.reap(ctx, pool, l))
			return nil
		}) {
			r.finish(ctx, l.ID, try, nil)
			return
		}
	}
}

// begin answers nil while the instance is being reaped, or is not to be tried again yet.
func (r *reaper) begin(id protocol.InstanceID, now time.Time) *reapTry {
	r.mu.Lock()
	defer r.mu.Unlock()
	try := r.tries[id]
	if try == nil {
		try = &reapTry{}
		r.tries[id] = try
	}
	if try.busy || now.Before(try.next) {
		return nil
	}
	try.busy = true
	return try
}

// finish notes how a try ended. Trouble is tried again for ever, with backoff.
func (r *reaper) finish(ctx context.Context, id protocol.InstanceID, try *reapTry, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil || errors.Is(err, errOthers) || ctx.Err() != nil:
		delete(r.tries, id)
	default:
		r.metrics.reaps.WithLabelValues("broke").Inc()
		try.bad.begin(r.log.With(keyInstance, id), "reap dead instance; it is tried again", err)
		try.busy = false
		try.cap = min(max(2*try.cap, backoffFirst), backoffMost)
		try.next = time.Now().Add(rand.N(try.cap))
	}
}

// forget drops the tries of instances that others have reaped meanwhile.
func (r *reaper) forget(due []heartbeat.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	still := make(map[protocol.InstanceID]bool, len(due))
	for _, l := range due {
		still[l.ID] = true
	}
	for id, try := range r.tries {
		if !try.busy && !still[id] {
			delete(r.tries, id)
		}
	}
}

// keyInstance is a key of log records: a socket server.
const keyInstance = "instance"
