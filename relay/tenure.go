package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/registry"
)

// errRedis wraps whatever means that Redis may have lost writes: all that is in
// flight is forgotten, and the lease taken again.
var errRedis = errors.New("redis trouble")

// tenure is one holding of one partition, from the taking of the lease to its end,
// over one connection to Redis. Nothing that Redis answered outlives it: a seq is
// worth nothing on the next connection.
type tenure struct {
	// fixed after construction
	*partition
	conn    redis.UniversalClient   // exactly one connection; a second dial is a break
	reg     *registry.Registry      // over conn
	streams *inbox.Streams          // over conn
	fail    context.CancelCauseFunc // ends the work, with a cause
	probe   *prober

	lease *lease // set by take, fixed from then on

	// owned by take, then by serve
	checkpoint   *outbox.Checkpoint // as take found it; nil: none
	marker       outbox.Marker      // all up to it is routed and every reply was good
	collection   string             // the UUID that marker belongs to; "": unknown
	placed       bool               // marker is a place; false: only a scan can give one
	dirty        bool               // marker moved since it was written
	tick         int64              // of the last slot
	ticked       time.Time          // when that was written
	careful      outbox.Timestamp   // up to it, anything may have been routed before
	width        int                // of a stage, in recipients
	mongoTrouble trouble
	badKey       trouble // keys of the wrong type: logged once
}

// newTenure opens the connection. The context is that of the work: it outlives the
// partition's stop by a grace, so that a batch under way ends whole, and ends at
// once with the first trouble.
func newTenure(p *partition) (*tenure, context.Context) {
	work, fail := context.WithCancelCause(context.WithoutCancel(p.stop))
	t := &tenure{partition: p, fail: fail, probe: newProber(p), width: widthFirst}
	g := &guard{fail: fail}
	t.conn = p.r.dial(g.broken)
	t.conn.AddHook(g)
	t.reg = registry.New(t.conn, registry.Config{})
	t.streams = inbox.New(t.conn, inbox.Config{Logger: p.log, Metrics: p.r.cfg.Metrics})
	return t, work
}

func (t *tenure) close() {
	t.fail(errStopped)
	_ = t.conn.Close() // nothing of it is used again
}

// graceful ends the work a grace after the partition's stop. The returned function
// is to be called when the work is over.
func (t *tenure) graceful() (done func()) {
	var timer *time.Timer
	started := make(chan struct{})
	stop := context.AfterFunc(t.stop, func() {
		timer = time.AfterFunc(stopGrace, func() { t.fail(context.Cause(t.stop)) })
		close(started)
	})
	return func() {
		if stop() {
			return
		}
		<-started
		timer.Stop()
	}
}

// reading gives a context for what needs no grace: waiting, and reading MongoDB.
func (t *tenure) reading(work context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(work)
	stop := context.AfterFunc(t.stop, func() { cancel(context.Cause(t.stop)) })
	return ctx, func() { stop(); cancel(nil) }
}

// release gives the lease up, unless it is lost anyway.
func (t *tenure) release() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := t.lease.release(ctx, t.conn); err != nil {
		t.log.Debug("lease was not given up, it ends by itself", keyError, err)
	}
}

// exec runs a pipeline over the partition's connection: not without a lease, and
// nothing is believed that came back over a connection that broke. Errors about
// one key stay with their commands.
func (t *tenure) exec(work context.Context, p redis.Pipeliner) error {
	if p.Len() == 0 {
		return nil
	}
	ctx, cancel, err := t.lease.bound(work)
	if err != nil {
		return err
	}
	defer cancel()
	cmds, err := p.Exec(ctx)
	if err := t.broken(work, err); err != nil {
		return err
	}
	for _, c := range cmds {
		if err := t.broken(work, c.Err()); err != nil {
			return fmt.Errorf("%s: %w", c.Name(), err)
		}
	}
	return nil
}

// broken is nil while the connection is what it was; err is what a command said.
func (t *tenure) broken(work context.Context, err error) error {
	if work.Err() != nil {
		return context.Cause(work)
	}
	if redisconn.IsTrouble(err) {
		return fmt.Errorf("%w: %w", errRedis, err)
	}
	return nil
}

// isBusy says that the connection was taken by a pipeline for too long to be had
// for a renewal: no break, and the own clock still runs.
func isBusy(err error) bool { return errors.Is(err, redis.ErrPoolTimeout) }
