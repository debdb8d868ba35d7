package socket

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// drain ends the service in order: no new sessions, goaway with a spread, close over the window, finish
// what is queued, hand the rest on, remove the inbox; the lease goes last.
func (s *Server) drain(ctx context.Context) {
	s.state.Store(draining)
	n := s.conns.count()
	s.log.Info("draining", slog.Int("connections", n))
	if n > 0 {
		sleep(ctx, s.cfg.DrainDelay)
		s.closeOver(ctx, s.cfg.DrainWindow)
	}
	l := s.current.Load()
	l.finish(ctx)
}

// closeOver asks every client to go, each at its own time within the window, and closes it a little
// after: most have a welcome elsewhere by then.
func (s *Server) closeOver(ctx context.Context, window time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, window+flushGrace+closePatience)
	defer cancel()
	conns := s.goaway("drain", window*3/4)
	start, n := time.Now(), len(conns)
	for i, c := range conns {
		due := start.Add(window*3/4*time.Duration(i)/time.Duration(n) + window/4)
		if wait := time.Until(due); wait > 0 && !s.idleOrAfter(ctx, wait) {
			break
		}
		c.shut(protocol.CloseRestart)
	}
	// Connections that had not said hello yet, or came at the last moment.
	s.conns.shut(protocol.CloseRestart)
	s.conns.wait(ctx)
}

// idleOrAfter returns false when there is no connection any more, true after the wait.
func (s *Server) idleOrAfter(ctx context.Context, wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return !s.conns.wait(ctx)
}

// goaway tells all clients to open their next connection, spread over a time, and returns them in the
// order of that.
func (s *Server) goaway(reason string, over time.Duration) []*conn {
	conns := s.hub.all()
	rand.Shuffle(len(conns), func(i, j int) { conns[i], conns[j] = conns[j], conns[i] })
	for i, c := range conns {
		after := over * time.Duration(i) / time.Duration(len(conns))
		c.send(protocol.Goaway{ReconnectAfter: after, Reason: reason}.AppendTo(nil))
	}
	return conns
}

// finishWithin bounds what the end of a life may take when Redis is slow or away.
const finishWithin = 3 * time.Second

// finish hands on what is left and removes the inbox. What it can't finish is a reaper's: the lease
// ends, and the inbox stays.
func (l *life) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, finishWithin)
	defer cancel()
	l.halt()
	if l.over.Load() {
		return // it lost its lease: a reaper has all of it
	}
	if !l.inherited.Load() {
		for _, old := range l.olds { // no session is left that could be missed
			_ = l.s.leases.End(ctx, old)
		}
	}
	if !l.empty(ctx) {
		entries, _ := l.tracker.size()
		l.s.log.Warn("left entries in the inbox for others to take", slog.Int("entries", entries))
		_ = l.s.leases.End(ctx, l.id)
		return
	}
	if err := l.s.leases.Remove(ctx, l.id); err != nil {
		l.s.log.Warn("give up lease meets trouble; it ends by itself", slog.Any("error", err))
	}
}

// empty works until the inbox is deleted: entries that relays add until then are handed on like others.
func (l *life) empty(ctx context.Context) bool {
	var b backoff
	for ctx.Err() == nil {
		for entries, _ := l.tracker.size(); entries > 0; entries, _ = l.tracker.size() {
			if !sleep(ctx, 5*time.Millisecond) {
				return false
			}
		}
		gone, err := l.s.streams.Seal(ctx, l.id)
		if err == nil && gone {
			return true
		}
		if err == nil {
			err = l.readRest(ctx)
		}
		if err != nil && !b.wait(ctx) {
			return false
		}
	}
	return false
}

// readRest reads without waiting, over the shared pool: the reader's own connection is closed.
func (l *life) readRest(ctx context.Context) error {
	raws, err := l.s.streams.Read(ctx, l.s.rdb, l.id, readCount, 0)
	if err == nil && len(raws) == 0 {
		// What is left was given out before, and its reply lost.
		raws, err = l.s.streams.Pending(ctx, l.s.rdb, l.id, "", readCount)
	}
	if err != nil {
		return err
	}
	return l.take(ctx, raws)
}
