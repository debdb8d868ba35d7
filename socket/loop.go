package socket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

const (
	// readBlock is how long one read waits for entries.
	readBlock = 2 * time.Second
	// readCount is how many entries one read takes: with 64 events each, what fits into one session's
	// queue several times over.
	readCount = 16
	// maxFailures is how often an entry is tried before it is put aside.
	maxFailures = 5
	// roomLook is the time between two looks whether a full tracker has room again.
	roomLook = 50 * time.Millisecond
)

// loop reads the inbox: own pending entries first, and again after every broken connection, since a
// reply may have been lost with it.
func (l *life) loop(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.reading, cancel)()
	// A blocking read ends with its connection, not with its context.
	defer inbox.CloseOnDone(ctx, l.reader)()
	var b backoff
	pending, lookedAt := true, time.Now()
	for ctx.Err() == nil {
		err := l.turn(ctx, &pending, &lookedAt)
		switch {
		case err == nil:
			b.good(l.s.log, "read inbox")
			l.tick()
		case ctx.Err() != nil:
		case errors.Is(err, inbox.ErrGone):
			return fmt.Errorf("%w: %w", errLost, err)
		default:
			pending = true
			b.log(l.s.log, "read inbox", err)
			b.wait(ctx)
		}
	}
	return nil
}

// turn is one read and what comes of it.
func (l *life) turn(ctx context.Context, pending *bool, lookedAt *time.Time) error {
	if !l.room(ctx) {
		return nil
	}
	if *pending {
		if err := l.readPending(ctx); err != nil {
			return err
		}
		*pending = false
	}
	if time.Since(*lookedAt) >= l.s.cfg.TakeLostInterval {
		if err := l.takeLost(ctx); err != nil {
			return err
		}
		*lookedAt = time.Now()
	}
	raws, err := l.s.streams.Read(ctx, l.reader, l.id, readCount, readBlock)
	if err != nil {
		return err
	}
	return l.take(ctx, raws)
}

// room waits until the tracker has room. At the bound it is not the server's fault that it does not get
// on: the sessions that hold the oldest pairs are closed, and their pairs handed on.
func (l *life) room(ctx context.Context) bool {
	var since time.Time
	for l.full() {
		if since.IsZero() {
			since = time.Now()
			l.s.metrics.bound.Inc()
		}
		l.tick() // a pause is progress
		if time.Since(since) >= l.s.cfg.InboxGrace {
			l.closeOldest()
		}
		timer := time.NewTimer(roomLook)
		select {
		case <-l.tracker.roomWake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}

func (l *life) full() bool {
	entries, bytes := l.tracker.size()
	return entries >= l.s.cfg.InboxEntries || bytes >= l.s.cfg.InboxBytes
}

// closeOldest closes the sessions that hold pairs of the oldest entry that any session holds.
func (l *life) closeOldest() {
	before := time.Now().Add(-l.s.cfg.InboxGrace)
	for _, en := range l.tracker.unsettled(func(en *entry) bool { return en.read.Before(before) }) {
		closed := false
		for _, tk := range en.open() {
			for _, c := range l.s.hub.of(tk.pair.User) {
				c.shut(protocol.CloseAckTimeout)
				closed = true
			}
		}
		if closed {
			return
		}
	}
}

func (l *life) readPending(ctx context.Context) error {
	for after := ""; ; {
		raws, err := l.s.streams.Pending(ctx, l.reader, l.id, after, readCount)
		if err != nil || len(raws) == 0 {
			return err
		}
		after = raws[len(raws)-1].ID
		if err := l.take(ctx, raws); err != nil {
			return err
		}
		l.tick()
		if !l.room(ctx) {
			return nil
		}
	}
}

// takeLost takes entries again whose reply never came, although the connection lived on.
func (l *life) takeLost(ctx context.Context) error {
	ids, dropped, err := l.s.streams.TakeLost(ctx, l.id, l.s.cfg.TakeLostInterval)
	if err != nil {
		return err
	}
	for _, id := range dropped {
		if !l.tracker.knows(id) {
			l.lost(id)
		}
	}
	var unknown []string
	for _, id := range ids {
		if !l.tracker.knows(id) {
			unknown = append(unknown, id)
		}
	}
	for len(unknown) > 0 {
		n := min(readCount, len(unknown))
		raws, err := l.s.streams.Fetch(ctx, l.id, unknown[:n]...)
		if err != nil {
			return err
		}
		unknown = unknown[n:]
		var still []inbox.Raw
		for _, raw := range raws {
			if raw.Deliveries > 0 { // else it was settled in between
				still = append(still, raw)
			}
		}
		if err := l.take(ctx, still); err != nil {
			return err
		}
	}
	return nil
}

// take handles what one read gave; controls before the pairs of the same read.
func (l *life) take(ctx context.Context, raws []inbox.Raw) error {
	entries := make([]inbox.Entry, len(raws))
	for i, raw := range raws {
		if l.tracker.knows(raw.ID) {
			continue
		}
		l.s.metrics.read.Inc()
		if raw.Fields == nil {
			l.lost(raw.ID)
			l.tracker.ack(raw.ID, time.Now())
			continue
		}
		e, err := inbox.Decode(raw)
		if err != nil {
			if err := l.bury(ctx, raw, err.Error()); err != nil {
				return err
			}
			continue
		}
		if e.Control != nil {
			l.kick(e.Control)
			l.tracker.ack(raw.ID, time.Now())
			continue
		}
		entries[i] = e
	}
	for i, e := range entries {
		if e.ID == "" {
			continue
		}
		if err := l.handle(ctx, raws[i], e); err != nil {
			return err
		}
	}
	return nil
}

// lost counts an entry of which only the id is left.
func (l *life) lost(id string) {
	l.s.metrics.lost.Inc()
	l.s.log.Warn("an inbox entry has lost its body", slog.String("entry", id))
}

// bury puts an entry aside that can't be handled. Failing that it stays pending.
func (l *life) bury(ctx context.Context, raw inbox.Raw, reason string) error {
	err := l.s.streams.ToDead(ctx, inbox.Key(l.id), reason, raw.ID, raw.Deliveries, raw.Fields)
	if err != nil {
		return err
	}
	l.s.metrics.dead.Inc()
	l.tracker.ack(raw.ID, time.Now())
	return nil
}

// handle gives an entry's pairs out. One entry that makes it panic must not take all users down, again
// and again, wherever it is moved to.
func (l *life) handle(ctx context.Context, raw inbox.Raw, e inbox.Entry) error {
	failure := func() (failure any) {
		defer func() {
			if failure = recover(); failure != nil {
				l.s.log.Error("handling an inbox entry panicked", slog.String("entry", e.ID), slog.Any("panic", failure), slog.String("stack", string(debug.Stack())))
			}
		}()
		l.give(raw, e)
		return nil
	}()
	if failure == nil || l.tracker.failed(e.ID) < maxFailures {
		return nil
	}
	return l.bury(ctx, raw, fmt.Sprintf("handling failed %d times: %v", maxFailures, failure))
}

func (l *life) give(raw inbox.Raw, e inbox.Entry) {
	now := time.Now()
	en, fresh := l.tracker.add(e, len(raw.Fields["b"]), now)
	if !fresh {
		return
	}
	defer l.tracker.given(en)
	i := 0
	for _, it := range e.Batch.Items {
		probe := l.isProbe(it, now)
		if !probe && !it.Event.Ephemeral {
			l.s.store.Remember(it.Event)
		}
		for range it.Pairs {
			tk := &en.tickets[i]
			i++
			if probe {
				tk.Settle()
				continue
			}
			l.route(tk, now)
		}
	}
}
