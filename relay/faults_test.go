package relay_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/relay"
)

var errDead = fmt.Errorf("the process is dead: %w", net.ErrClosed)

// fault is put into the connections of one relay. Once dead, nothing of that relay
// reaches Redis any more, as if its process had been killed.
type fault struct {
	dead atomic.Bool
	hold atomic.Pointer[chan struct{}] // nothing else is sent until it is closed

	mu sync.Mutex
	// on sees every pipeline before it is sent. It may run a part of it by next, and
	// answers what is left to send.
	on func(cmds []redis.Cmder, send func([]redis.Cmder) error) ([]redis.Cmder, error)
}

func (f *fault) hook(r *relay.Relay) {
	r.OnConn(func(c redis.UniversalClient) { c.AddHook(f) })
}

func (f *fault) set(on func(cmds []redis.Cmder, send func([]redis.Cmder) error) ([]redis.Cmder, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on = on
}

func (f *fault) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *fault) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if hold := f.hold.Load(); hold != nil {
			<-*hold
		}
		if f.dead.Load() {
			cmd.SetErr(errDead)
			return errDead
		}
		return next(ctx, cmd)
	}
}

func (f *fault) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if f.dead.Load() {
			return kill(cmds)
		}
		f.mu.Lock()
		on := f.on
		f.mu.Unlock()
		rest := cmds
		if on != nil {
			var err error
			if rest, err = on(cmds, func(c []redis.Cmder) error { return next(context.WithoutCancel(ctx), c) }); err != nil {
				for _, c := range cmds {
					c.SetErr(err)
				}
				return err
			}
		}
		if f.dead.Load() {
			return kill(cmds)
		}
		if len(rest) == 0 {
			return nil
		}
		return next(ctx, rest)
	}
}

func kill(cmds []redis.Cmder) error {
	for _, c := range cmds {
		c.SetErr(errDead)
	}
	return errDead
}

// what a pipeline does.
func appends(cmds []redis.Cmder) int {
	n := 0
	for _, c := range cmds {
		if c.Name() == "rpushx" || c.Name() == "evalsha" {
			n++
		}
	}
	return n
}

func addsTo(cmds []redis.Cmder, prefix string) bool {
	for _, c := range cmds {
		if c.Name() == "xadd" && strings.HasPrefix(fmt.Sprint(c.Args()[1]), prefix) {
			return true
		}
	}
	return false
}

func isInbox(cmds []redis.Cmder) bool  { return addsTo(cmds, "socket:inbox:") }
func isNotice(cmds []redis.Cmder) bool { return addsTo(cmds, inbox.Notifications) }

// faultyStore is an outbox with faults and counts in front.
type faultyStore struct {
	relay.Outbox
	checkpointDelay time.Duration

	checkpoints atomic.Int64 // writes
	opened      atomic.Int64
	open        atomic.Int64
	mostOpen    atomic.Int64

	mu     sync.Mutex
	onScan func(batch int) error
}

func (s *faultyStore) Watch(ctx context.Context, o outbox.WatchOptions) (relay.Stream, error) {
	s.opened.Add(1)
	st, err := s.Outbox.Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	n := s.open.Add(1)
	for most := s.mostOpen.Load(); n > most && !s.mostOpen.CompareAndSwap(most, n); most = s.mostOpen.Load() {
	}
	return &countedStream{Stream: st, store: s}, nil
}

type countedStream struct {
	relay.Stream
	store *faultyStore
}

func (s *countedStream) Close(ctx context.Context) error {
	s.store.open.Add(-1)
	return s.Stream.Close(ctx)
}

func (s *faultyStore) SaveMarker(ctx context.Context, p int, fence int64, m outbox.Marker, since time.Time) error {
	s.wrote(ctx)
	return s.Outbox.SaveMarker(ctx, p, fence, m, since)
}

func (s *faultyStore) SaveSlot(ctx context.Context, p int, fence int64, slot outbox.Slot) error {
	s.wrote(ctx)
	return s.Outbox.SaveSlot(ctx, p, fence, slot)
}

func (s *faultyStore) wrote(ctx context.Context) {
	s.checkpoints.Add(1)
	if s.checkpointDelay > 0 {
		timer := time.NewTimer(s.checkpointDelay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

func (s *faultyStore) Scan(ctx context.Context, from time.Time, p, n int, each func(context.Context, []outbox.Change) error) error {
	batch := 0
	return s.Outbox.Scan(ctx, from, p, n, func(ctx context.Context, changes []outbox.Change) error {
		s.mu.Lock()
		on := s.onScan
		s.mu.Unlock()
		if on != nil {
			if err := on(batch); err != nil {
				return err
			}
		}
		batch++
		return each(ctx, changes)
	})
}

func (s *faultyStore) scanning(on func(batch int) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onScan = on
}
