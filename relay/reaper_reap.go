package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/registry"
)

const (
	reapPage  = 256     // entries read at a time
	reapBytes = 1 << 20 // of entries that are handed on, then settled, at a time
	// reapRounds bounds how often an inbox is found neither empty nor readable
	// before its reap counts as trouble.
	reapRounds = 3
)

// errUnreadable says that an inbox holds something that no read gives out.
var errUnreadable = errors.New("inbox is not empty, but nothing in it can be read")

// reaping is the reap of one dead instance, over one connection. Every step may be
// the last one: whoever comes next does all of it again, and finds done what is done.
//
// The claim comes first, over the same connection as everything else: a Redis that
// lost the claim has also broken the connection, and if the instance's lease runs
// again there, nothing more is taken from it. For the same reason an entry is
// settled over the connection that moved it, or moved again.
type reaping struct {
	// fixed after construction
	*reaper
	dead    heartbeat.Lease
	lock    *reapLock
	conn    redis.UniversalClient // exactly one connection; a second dial is refused
	leases  *heartbeat.Leases     // these four over conn
	streams *inbox.Streams
	hand    *inbox.HandOn
	began   time.Time

	did Reaped
}

// reap empties one inbox, and removes what is left of its instance. It answers nil
// also where there is nothing to do: the instance has come back, or is gone.
func (r *reaper) reap(stop context.Context, pool redis.UniversalClient, dead heartbeat.Lease) error {
	lock := &reapLock{key: reapKey(dead.ID), by: r.by(), ttl: r.cfg.Lease}
	if err := lock.hold(stop, pool); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(stop)
	defer fail(nil)
	g := r.reaping(dead, lock, fail)
	defer g.conn.Close()
	err := g.run(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	g.unlock(pool)
	return err
}

func (r *reaper) reaping(dead heartbeat.Lease, lock *reapLock, fail context.CancelCauseFunc) *reaping {
	guard := &guard{fail: fail}
	conn := r.dial(guard.broken)
	conn.AddHook(guard)
	leases := heartbeat.New(conn, heartbeat.SocketInstances, r.cfg.pace())
	return &reaping{
		reaper: r, dead: dead, lock: lock, conn: conn, leases: leases, began: time.Now(),
		streams: inbox.New(conn, inbox.Config{Logger: r.log, Metrics: r.cfg.Metrics}),
		hand: inbox.NewHandOn(conn, registry.New(conn, registry.Config{}), leases, inbox.HandOnConfig{
			NotifyEnabled: r.cfg.NotifyEnabled, Metrics: r.cfg.Metrics, Logger: r.log,
		}),
		did: Reaped{Instance: dead.ID, By: lock.by, Ended: endOf(dead)},
	}
}

// run is a reap, step by step.
func (g *reaping) run(ctx context.Context) error {
	claimed, err := g.leases.Claim(ctx, g.dead.ID, g.dead.Score)
	if err != nil || !claimed {
		return err
	}
	g.log.Debug("reap dead instance", keyInstance, g.dead.ID)
	if err := g.clear(ctx); err != nil {
		return err
	}
	if err := g.hold(ctx); err != nil {
		return err
	}
	g.did.Took = time.Since(g.began)
	if err := g.did.write(ctx, g.conn); err != nil {
		return err
	}
	if err := g.leases.Remove(ctx, g.dead.ID); err != nil { // the description, then the lease
		return err
	}
	g.metrics.reaps.WithLabelValues("done").Inc()
	g.log.Info("reaped dead instance", keyInstance, g.dead.ID, "entries", g.did.Entries,
		"moved", g.did.Moved, "notified", g.did.Notified, "dropped", g.did.Dropped, "took", g.did.Took)
	return nil
}

// unlock comes last, whatever happened: others may go on at once.
func (g *reaping) unlock(pool redis.UniversalClient) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := g.lock.release(ctx, pool); err != nil {
		g.log.Debug("lock of a dead instance was not given up, it ends by itself", keyError, err)
	}
}

// clear empties the inbox until it is sealed: nothing can come in behind that.
func (g *reaping) clear(ctx context.Context) error {
	for idle := 0; idle < reapRounds; idle++ {
		before := g.did.Entries
		if err := g.empty(ctx); err != nil {
			return err
		}
		sealed, err := g.streams.Seal(ctx, g.dead.ID)
		if err != nil || sealed {
			return err
		}
		if g.did.Entries > before {
			idle = -1 // somebody still adds: go on
		}
	}
	return errUnreadable
}

// empty takes all that is pending, then all that is unread.
func (g *reaping) empty(ctx context.Context) error {
	err := g.pending(ctx)
	if err == nil {
		err = g.unread(ctx)
	}
	if errors.Is(err, inbox.ErrGone) {
		return g.streams.Regroup(ctx, g.dead.ID) // if it was but the group; Seal tells
	}
	return err
}

func (g *reaping) pending(ctx context.Context) error {
	for cursor, more := "", true; more; more = cursor != "" {
		if err := g.hold(ctx); err != nil {
			return err
		}
		taken, err := g.streams.TakeOver(ctx, g.dead.ID, cursor, reapPage)
		if err != nil {
			return err
		}
		g.lost(taken.Lost)
		if err := g.consume(ctx, taken.Raws); err != nil {
			return err
		}
		cursor = taken.Next
	}
	return nil
}

func (g *reaping) unread(ctx context.Context) error {
	for {
		if err := g.hold(ctx); err != nil {
			return err
		}
		raws, err := g.streams.TakeUnread(ctx, g.dead.ID, reapPage)
		if err != nil || len(raws) == 0 {
			return err
		}
		if err := g.consume(ctx, raws); err != nil {
			return err
		}
	}
}

// hold renews the lock, and stops where it, or the connection, is not ours any more.
func (g *reaping) hold(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return g.lock.hold(ctx, g.conn)
}
