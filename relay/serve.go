package relay

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lastmile-gateway/lastmile/outbox"
)

// idlePause is how long after a batch the marker waits for a next one to travel
// with.
const idlePause = 50 * time.Millisecond

// errReopen ends a stream whose probe did not come back.
var errReopen = errors.New("probe did not come back on the stream")

// serve follows the change stream, and scans where it has no place or lost it. It
// ends with the work, or with the partition's stop. Trouble of MongoDB is waited
// out, whatever it is called.
func (t *tenure) serve(work context.Context) error {
	ctx, cancel := t.reading(work)
	defer cancel()
	var back backoff
	for {
		began := time.Now()
		err := t.follow(work)
		if isHistoryLost(err) && ctx.Err() == nil {
			err = t.catchUp(work, err)
		}
		switch {
		case ctx.Err() != nil:
			return t.leave(work, ctx)
		case t.isOver(err):
			return err
		case err != nil:
			t.mongoTrouble.begin(t.log, "mongodb trouble, going on with backoff", err)
			t.view.trouble(err)
		}
		if time.Since(began) > backoffMost {
			back.reset()
		}
		back.wait(ctx)
	}
}

// isOver says that err concerns the lease or Redis, not MongoDB.
func (t *tenure) isOver(err error) bool {
	for _, end := range []error{errRedis, errFenced, errLeaseOver} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// catchUp scans after the stream's history was lost; a first start has none.
func (t *tenure) catchUp(work context.Context, lost error) error {
	if t.placed {
		t.r.metrics.historyLost.Inc()
		t.log.Warn("history of the change stream is lost", keyError, lost, keyPlace, formatPosition(t.marker.Position))
	}
	return t.scan(work)
}

// leave writes the marker behind the last batch, so that a successor has little to
// do again.
func (t *tenure) leave(work, ctx context.Context) error {
	if work.Err() == nil && t.placed {
		_ = t.round(work) // the successor does it again
	}
	return context.Cause(ctx)
}

// follow opens the stream at the marker and routes what it brings, until something
// ends it. The stream is read ahead by at most one batch: what is read while a
// batch is routed becomes the next one.
func (t *tenure) follow(work context.Context) error {
	if !t.placed {
		return outbox.ErrHistoryLost // there never was one
	}
	ctx, cancel := t.reading(work)
	defer cancel()
	st, err := t.watch(ctx, t.marker)
	if err != nil {
		return err
	}
	defer closeStream(st)
	t.view.set(stateRunning)
	reads := make(chan read, 1)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return t.readAhead(gctx, st, reads) })
	g.Go(func() error { return t.probe.run(gctx) })
	g.Go(func() error { return t.loop(work, gctx, reads) })
	return g.Wait()
}

// read is what one look at the stream brought.
type read struct {
	changes []outbox.Change
	token   outbox.Token
	at      outbox.Position
}

func (t *tenure) readAhead(ctx context.Context, st Stream, reads chan<- read) error {
	for {
		changes, err := st.Next(ctx)
		if err != nil {
			return err
		}
		token, at := st.Place()
		t.probe.watch(changes)
		select {
		case reads <- read{changes, token, at}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// loop routes batches, writes the marker when nothing came for a moment, and keeps
// the checkpoint once a second. A batch is routed whole before the end of ctx is
// looked at.
func (t *tenure) loop(work, ctx context.Context, reads <-chan read) error {
	rounds := time.NewTicker(t.r.cfg.Copy)
	defer rounds.Stop()
	idle := time.NewTimer(idlePause)
	defer idle.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case r := <-reads:
			r = gather(r, reads, t.r.cfg.BatchSize)
			err = t.batch(work, r)
			if len(r.changes) > 0 {
				idle.Reset(idlePause)
			}
		case <-rounds.C:
			err = t.round(work)
		case <-idle.C:
			err = t.markIfDirty(work)
		}
		if err != nil {
			return err
		}
	}
}

// gather adds what is at hand, without waiting.
func gather(r read, reads <-chan read, most int) read {
	for len(r.changes) < most {
		select {
		case next := <-reads:
			r.changes = append(r.changes, next.changes...)
			r.token, r.at = next.token, next.at
		default:
			return r
		}
	}
	return r
}

// batch routes what was read and moves the marker behind it.
func (t *tenure) batch(work context.Context, r read) error {
	if len(r.changes) > 0 {
		t.r.metrics.batch.Observe(float64(len(r.changes)))
		events, err := t.admit(work, r.changes, false)
		if err != nil {
			return err
		}
		if err := t.route(work, events, t.stageAppend); err != nil {
			return err
		}
	}
	t.moved(r.token, r.at)
	t.view.place(t.marker, t.tick)
	t.mongoTrouble.end(t.log, "mongodb")
	return nil
}
