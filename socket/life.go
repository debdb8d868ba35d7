package socket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// life is one life of the instance: an id, its lease, its inbox, and all that was read from it. A fence
// replaces it as a whole, so nothing of an old inbox is ever acknowledged in a new one.
type life struct {
	// fixed after construction
	s       *Server
	id      protocol.InstanceID
	olds    []protocol.InstanceID // earlier lives, to be ended when every session has moved
	tracker *tracker
	reader  redis.UniversalClient // for blocking reads alone
	beater  redis.UniversalClient // for beats alone
	keeper  *heartbeat.Keeper

	reading context.Context // ends when nothing more is to be read
	halt    context.CancelFunc

	over      atomic.Bool  // run has returned
	inherited atomic.Bool  // the earlier lives are ended
	progress  atomic.Int64 // ms of the loop's last turn
	awaited   atomic.Int64 // ms when the oldest open probe was added; 0: none is open
	probed    atomic.Int64 // ms when the last one came back
	lag       atomic.Int64 // ms that it took
}

func (s *Server) newLife(id protocol.InstanceID, value int64) *life {
	l := &life{
		s: s, id: id, tracker: newTracker(), reader: s.where.Conn(s.redialled), beater: s.where.Conn(s.redialled),
	}
	l.tracker.life = l
	l.reading, l.halt = context.WithCancel(context.Background())
	l.tick()
	l.keeper = heartbeat.New(l.beater, heartbeat.SocketInstances, s.heartbeatConfig()).Keep(id, value, l.alive, s.refreshAll)
	return l
}

// run returns errLost when the lease or the inbox is gone, nil when ctx ends.
func (l *life) run(ctx context.Context) error {
	defer func() { _ = l.beater.Close() }()
	defer func() { _ = l.reader.Close() }()
	defer l.halt()
	defer l.over.Store(true)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := l.keeper.Run(ctx); err != nil {
			return fmt.Errorf("%w: %w", errLost, err)
		}
		return nil
	})
	g.Go(func() error { return l.loop(ctx) })
	g.Go(func() error { return l.settle(ctx) })
	g.Go(func() error { return l.handOn(ctx) })
	g.Go(func() error { return l.sweep(ctx) })
	g.Go(func() error { return l.probe(ctx) })
	g.Go(func() error { return l.watch(ctx) })
	g.Go(func() error { return l.inherit(ctx) })
	return g.Wait()
}

func (l *life) tick() { l.progress.Store(time.Now().UnixMilli()) }

// alive stops the beat of a server whose loop hangs: its users are better off elsewhere.
func (l *life) alive() bool {
	return time.Since(time.UnixMilli(l.progress.Load())) < l.s.cfg.LoopStall
}

func (l *life) ready(now time.Time) error {
	if silent := now.Sub(l.keeper.LastBeat()); silent > l.s.cfg.CutOff {
		return fmt.Errorf("no beat reached Redis for %v", silent.Round(100*time.Millisecond))
	}
	if !l.alive() {
		return errors.New("the inbox loop makes no progress")
	}
	if at := l.awaited.Load(); at != 0 && now.Sub(time.UnixMilli(at)) > l.s.cfg.ProbeTimeout {
		return fmt.Errorf("a probe into the own inbox is not back after %v", now.Sub(time.UnixMilli(at)).Round(100*time.Millisecond))
	}
	return nil
}

// inherit ends the leases of earlier lives, last of all: when every session has its new field, so that
// a reaper that takes the old inbox finds them there.
func (l *life) inherit(ctx context.Context) error {
	if len(l.olds) == 0 {
		return nil
	}
	for !l.s.homed(l.id) {
		if !sleep(ctx, homedLook) {
			return nil
		}
	}
	for _, old := range l.olds {
		if l.s.retry(ctx, "end old lease", func(ctx context.Context) error { return l.s.leases.End(ctx, old) }) != nil {
			return nil
		}
	}
	l.inherited.Store(true)
	l.s.log.Info("moved to a new instance", slog.String("instance", string(l.id)), slog.Int("ended", len(l.olds)))
	return nil
}

// homedLook is the time between two looks whether all sessions have moved.
const homedLook = 20 * time.Millisecond

// watch asks the clients to move when Redis is away for long, and describes the instance for people.
func (l *life) watch(ctx context.Context) error {
	asked := false
	for tick := 0; sleep(ctx, time.Second); tick++ {
		away := time.Since(l.keeper.LastBeat()) > l.s.cfg.LongCutOff
		if away && !asked {
			l.s.goaway("cut off", l.s.cfg.LongCutOff)
		}
		asked = away
		if !away && tick%10 == 0 {
			l.describe(ctx)
		}
	}
	return nil
}

func (l *life) describe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	info := heartbeat.Info{
		Name: l.s.cfg.Name, Address: l.s.cfg.Address, Version: l.s.cfg.Version, Started: l.s.started,
		State: stateNames[l.s.state.Load()], Sessions: l.s.conns.count(), Lag: time.Duration(l.lag.Load()) * time.Millisecond,
	}
	if at := l.probed.Load(); at != 0 {
		info.Probe = time.UnixMilli(at)
	}
	// For sight only: the next one is due in a few seconds.
	_ = l.s.leases.Describe(ctx, l.id, info)
}

// probe adds a probe to the own inbox now and then; the loop recognises it. Also while one is open: Redis
// may have lost that.
func (l *life) probe(ctx context.Context) error {
	for {
		l.addProbe(ctx)
		if !sleep(ctx, l.s.cfg.ProbeInterval) {
			return nil
		}
	}
}

func (l *life) addProbe(ctx context.Context) {
	now := time.Now()
	first := l.awaited.CompareAndSwap(0, now.UnixMilli())
	env := &protocol.Envelope{ID: protocol.NewEventID(), Type: protocol.ProbeType, Time: now, Ephemeral: true, Body: []byte("{}")}
	pair := protocol.Pair{User: protocol.UserID(l.id)}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	_, err := l.s.streams.Append(ctx, l.id, inbox.Entry{Batch: protocol.Batch{Items: []protocol.Item{{Event: env, Pairs: []protocol.Pair{pair}}}}})
	if err != nil && !errors.Is(err, inbox.ErrGone) && first {
		// It may have been added or not: the next one tells. Redis' absence is seen by the beat.
		l.awaited.CompareAndSwap(now.UnixMilli(), 0)
	}
}

// isProbe takes a probe: the own one, or one that came the whole way from the outbox.
func (l *life) isProbe(it protocol.Item, now time.Time) bool {
	if it.Event.Type != protocol.ProbeType {
		return false
	}
	lag := now.Sub(it.Event.Time)
	if len(it.Pairs) == 0 || it.Pairs[0].User != protocol.UserID(l.id) {
		l.s.metrics.wayLag.Set(lag.Seconds())
		return true
	}
	l.awaited.Store(0)
	l.probed.Store(now.UnixMilli())
	l.lag.Store(lag.Milliseconds())
	l.s.metrics.probe.Set(lag.Seconds())
	return true
}
