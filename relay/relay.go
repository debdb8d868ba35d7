package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// poolSize is the number of connections that a relay's looks share. Partitions and
// the membership have their own ones.
const poolSize = 2

// Relay takes events from the outbox to their recipients' inboxes, for the
// partitions that it holds.
type Relay struct {
	// fixed after construction
	cfg       Config
	log       *slog.Logger
	redis     *redisconn.Server
	store     Outbox
	metrics   *metrics
	instances *instances
	reaper    *reaper
	dial      func(onDial func()) redis.UniversalClient // the connection of a tenure

	fitted atomic.Bool // the outbox has our number of partitions; false: to be looked at

	mu      sync.Mutex
	ids     []protocol.InstanceID // of this process; the last one is today's
	held    map[int]*partition
	seen    outlook // the last look
	mongo   error   // what the last ping said
	waiting string  // what keeps this relay from taking any partition; "": nothing
	work    *errgroup.Group
}

// New makes a relay over a Redis and an outbox. It starts nothing: see [Relay.Run].
func New(cfg Config, redis *redisconn.Server, store *outbox.Store) (*Relay, error) {
	return NewOver(cfg, redis, Over(store))
}

// NewOver is New over anything that behaves like an outbox: tests put faults in
// between.
func NewOver(cfg Config, server *redisconn.Server, store Outbox) (*Relay, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure relay: %w", err)
	}
	cfg = cfg.withDefaults()
	r := &Relay{
		cfg: cfg, log: cfg.Logger, redis: server, store: store,
		instances: newInstances(),
		held:      make(map[int]*partition),
		mongo:     errors.New("not looked at yet"),
		dial:      server.Conn,
	}
	r.metrics = newMetrics(cfg.Metrics, r)
	r.reaper = newReaper(cfg, server.Conn, r.owner, r.fenceOfFirst)
	r.instances.tell = r.reaper.saw
	return r, nil
}

// Run relays until ctx ends, and then gives its leases up. Trouble of Redis and of
// MongoDB is waited out. It returns an error only where another relay of the same
// name took over: [heartbeat.ErrSuperseded].
func (r *Relay) Run(ctx context.Context) error {
	pool := r.redis.Pool(poolSize, nil)
	defer pool.Close()
	r.instances.over(pool, r.cfg)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work errgroup.Group
	r.work = &work
	var joined = make(chan struct{})
	work.Go(func() error {
		err := r.belong(ctx, sync.OnceFunc(func() { close(joined) }))
		cancel(err)
		return err
	})
	work.Go(func() error {
		select {
		case <-joined:
			r.keepLooking(ctx, pool)
		case <-ctx.Done():
		}
		return nil
	})
	work.Go(func() error { r.keepPinging(ctx); return nil })
	work.Go(func() error { r.keepRetention(ctx); return nil })
	work.Go(func() error { r.reaper.run(ctx, pool); return nil })
	if r.cfg.NotifyEnabled {
		watch := newReaderWatch(r, pool)
		work.Go(func() error { watch.run(ctx); return nil })
	}
	return work.Wait()
}

// owner is under which id this relay takes leases.
func (r *Relay) owner() protocol.InstanceID {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids) == 0 {
		return ""
	}
	return r.ids[0] // stays the same: a lease is retaken by its own holder
}

// keepPinging looks after MongoDB for Ready, which must not wait for it.
func (r *Relay) keepPinging(ctx context.Context) {
	for {
		pctx, cancel := context.WithTimeout(ctx, pingTimeout)
		err := r.store.Ping(pctx)
		cancel()
		r.mu.Lock()
		r.mongo = err
		r.mu.Unlock()
		pause := pingEvery
		if err != nil {
			pause = r.cfg.Look
		}
		if !pauseFor(ctx, pause) {
			return
		}
	}
}

const (
	pingEvery   = 5 * time.Second
	pingTimeout = 3 * time.Second
)

// pace is how leases of relays and instances are kept.
func (c Config) pace() heartbeat.Config {
	return heartbeat.Config{Lease: c.Lease, Every: c.Renew, Logger: c.Logger}
}
