package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/relay"
)

// deafStore opens streams that stay silent for as long as deaf is set, as a cursor
// does that a server forgot without a word.
type deafStore struct {
	relay.Outbox
	deaf   atomic.Bool
	opened atomic.Int64
}

func (s *deafStore) Watch(ctx context.Context, o outbox.WatchOptions) (relay.Stream, error) {
	st, err := s.Outbox.Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	s.opened.Add(1)
	return &deafStream{Stream: st, deaf: s.deaf.Load()}, nil
}

type deafStream struct {
	relay.Stream
	deaf bool
}

func (s *deafStream) Next(ctx context.Context) ([]outbox.Change, error) {
	if !s.deaf {
		return s.Stream.Next(ctx)
	}
	timer := time.NewTimer(50 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, nil
	}
}

// A stream that brings nothing although something was committed is found by the
// probe, and opened again; what was committed meanwhile is delivered.
func TestProbe_SilentStreamIsReopened(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.EmbeddedRedis(t))
	a := w.instance("a")
	a.connect("u")
	store := &deafStore{Outbox: relay.Over(w.store)}
	store.deaf.Store(true)
	cfg := quick("r")
	cfg.ProbeEvery, cfg.ProbeWithin = 600*time.Millisecond, 500*time.Millisecond
	r := w.relayOver(cfg, store)
	eventually(t, 10*time.Second, "the silent stream is open", func() bool { return store.opened.Load() >= 2 })
	w.publish(event(1, "u"))
	eventually(t, 10*time.Second, "it is opened again", func() bool { return store.opened.Load() >= 3 })
	if r.Ready() == nil {
		t.Error("ready over a silent stream")
	}
	store.deaf.Store(false)
	a.await(10*time.Second, "u", 1)
	r.ready()
}

// Probes are deleted, and reach nobody.
func TestProbe_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.EmbeddedRedis(t))
	a := w.instance("a")
	a.connect("lastmile.probe")
	cfg := quick("r")
	cfg.ProbeEvery, cfg.ProbeWithin = 60*time.Millisecond, 50*time.Millisecond
	r := w.relay(cfg)
	eventually(t, 10*time.Second, "a probe is back", func() bool {
		p := r.Status().Partitions
		return len(p) == 1 && p[0].Probe > 0
	})
	r.stop()
	n, err := w.rawOutbox().CountDocuments(t.Context(), map[string]any{})
	if err != nil || n != 0 {
		t.Errorf("%d documents left, %v", n, err)
	}
	if len(a.read()) != 0 || len(w.notified()) != 0 {
		t.Errorf("probes went to %v and %v", a.got, w.notified())
	}
}

// Old events are deleted once every partition has left them behind by the
// retention; younger ones stay.
func TestRetention_DeletesWhatIsOld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.EmbeddedRedis(t))
	cfg := ticking("r")
	cfg.Retention, cfg.RetentionEvery, cfg.ScanMargin = 2*time.Second, 100*time.Millisecond, time.Second
	old, young := event(1, "u"), event(2, "u")
	old.Time = time.Now().Add(-time.Minute)
	w.publish(old)
	w.relay(cfg).ready()
	count := func() int64 {
		n, err := w.rawOutbox().CountDocuments(t.Context(), map[string]any{"type": "test.event"})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	w.publish(young)
	eventually(t, 15*time.Second, "the old one is gone", func() bool { return count() <= 1 })
	if cp := w.checkpoint(0); cp.Marker.Tick < 20 {
		t.Errorf("gone after %d ticks", cp.Marker.Tick)
	}
	if _, err := w.store.Get(t.Context(), young.ID); err != nil {
		t.Errorf("the young one: %v", err)
	}
}
