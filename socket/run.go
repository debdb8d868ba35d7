package socket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/socket/internal/session"
)

// ErrSuperseded is returned by Run when another server was started under the same name.
var ErrSuperseded = heartbeat.ErrSuperseded

// errLost ends a life: its lease or its inbox is gone.
var errLost = errors.New("the instance is lost")

// lastWait bounds what Run waits for scripts and connections that are left at its end.
const lastWait = 3 * time.Second

// Run registers the server and delivers to its sessions until ctx ends; then it drains: clients are
// asked to go and closed over the drain window, what they have not acked is handed on. It returns nil
// after that, or ErrSuperseded. The caller keeps the listener open until Run returns. It can run once.
func (s *Server) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return errors.New("run socket server: it ran already")
	}
	defer s.closeAll()
	l, err := s.register(ctx)
	if err != nil || l == nil {
		return err
	}
	s.current.Store(l)
	living, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.live(living, l) }()
	select {
	case err = <-done:
		return err
	case <-ctx.Done():
	}
	s.drain(living)
	cancel()
	return <-done
}

// closeAll leaves nothing behind.
func (s *Server) closeAll() {
	s.state.Store(stopped)
	ctx, cancel := context.WithTimeout(context.Background(), lastWait)
	defer cancel()
	s.conns.shut(protocol.CloseGoingAway)
	s.conns.wait(ctx)
	stop := context.AfterFunc(ctx, s.stop)
	s.jobs.Wait() // nothing is submitted any more but by jobs
	stop()
	s.stop()
	_ = s.rdb.Close() // nothing uses it any more
}

// register waits out trouble with Redis. Without an error and a life: ctx ended.
func (s *Server) register(ctx context.Context) (*life, error) {
	var l *life
	err := s.retry(ctx, "register", func(ctx context.Context) error {
		if err := redisconn.Open(ctx, s.rdb); err != nil {
			return err
		}
		id, value, err := s.leases.Register(ctx, s.cfg.Name)
		if err != nil {
			return err
		}
		if err := s.streams.Make(ctx, id); err != nil {
			return err
		}
		l = s.newLife(id, value)
		return nil
	})
	if l == nil && ctx.Err() != nil {
		return nil, nil
	}
	return l, err // also if ctx has ended by now: what is registered is to be given up in order
}

// retry runs what one try takes at most commandTimeout, until it succeeds or ctx ends.
func (s *Server) retry(ctx context.Context, what string, try func(context.Context) error) error {
	var b backoff
	for {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, commandTimeout)
			defer cancel()
			return try(ctx)
		}()
		if err == nil || ctx.Err() != nil {
			return err
		}
		b.log(s.log, what, err)
		if !b.wait(ctx) {
			return err
		}
	}
}

// live is one life after the other.
func (s *Server) live(ctx context.Context, l *life) error {
	s.state.CompareAndSwap(starting, running)
	s.log.Info("socket server registered", slog.String("instance", string(l.id)))
	for {
		err := l.run(ctx)
		if ctx.Err() != nil || !errors.Is(err, errLost) || s.state.Load() >= draining {
			return nil
		}
		s.log.Warn("the instance is lost; becoming a new one", slog.String("instance", string(l.id)), slog.Any("error", err))
		if l, err = s.fence(ctx, l); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// fence makes the next life in place. Sessions stay connected and are moved to it; only when all are
// does the old lease end, so that a reaper finds every user at his new place.
func (s *Server) fence(ctx context.Context, old *life) (*life, error) {
	s.state.CompareAndSwap(running, fencing)
	s.metrics.fences.Inc()
	olds := append(old.olds, old.id)
	id, value, err := s.leases.Rejoin(ctx, s.cfg.Name, olds...)
	if errors.Is(err, heartbeat.ErrSuperseded) {
		return nil, fmt.Errorf("run socket server %s: %w: another server runs under this name; give each its own", s.cfg.Name, err)
	}
	if err != nil {
		return nil, err
	}
	if err := s.retry(ctx, "make inbox", func(ctx context.Context) error { return s.streams.Make(ctx, id) }); err != nil {
		return nil, err
	}
	l := s.newLife(id, value)
	l.olds = olds
	s.current.Store(l)
	s.state.CompareAndSwap(fencing, running)
	for _, c := range s.hub.all() {
		c.do(func(m *session.Machine, now time.Time) { m.Rehome(now, id) })
	}
	return l, nil
}

// homed says whether every session is registered under id, or on its way out.
func (s *Server) homed(id protocol.InstanceID) bool {
	for _, c := range s.hub.all() {
		if !c.homed(id) {
			return false
		}
	}
	return true
}
