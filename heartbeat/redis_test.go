package heartbeat_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// The same with a Redis that really stops.
func TestTrace_T46_RedisFrozenForTwoLeases(t *testing.T) {
	t.Parallel()
	s := testkit.OwnRedis(t)
	conn := s.Server().Conn(nil)
	t.Cleanup(func() { _ = conn.Close() })
	leases := heartbeat.New(conn, key, quick)
	id, value := register(t, leases, "a")
	resumed := make(chan struct{}, 10)
	k := leases.Keep(id, value, nil, func() { resumed <- struct{}{} })
	made := k.LastBeat()
	done, stop := keep(t, k)
	eventually(t, "it beats", func() bool { return k.LastBeat().After(made) })

	s.Freeze(t)
	eventually(t, "two leases long nothing answers", func() bool { return time.Since(k.LastBeat()) > 2*quick.Lease })
	s.Thaw(t)
	<-resumed
	running, err := heartbeat.New(s.Client(t), key, quick).Running(t.Context(), id)
	if err != nil || !running[id] {
		t.Errorf("it does not go on: %v, %v", running, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("a pause of Redis moved somebody: %v", err)
	}
}

func TestRedisComesBackEmpty(t *testing.T) {
	t.Parallel()
	s := testkit.OwnRedis(t)
	conn := s.Server().Conn(nil)
	t.Cleanup(func() { _ = conn.Close() })
	leases := heartbeat.New(conn, key, quick)
	id, value := register(t, leases, "a")
	done, _ := keep(t, leases.Keep(id, value, nil, nil))
	s.Restart(t)
	if err := <-done; !errors.Is(err, heartbeat.ErrLost) {
		t.Fatalf("it beats on: %v", err)
	}
	next, _, err := leases.Rejoin(t.Context(), "a", id)
	if err != nil || next == id {
		t.Errorf("rejoined as %s: %v", next, err)
	}
}

// An observer that was paused acts on what it saw long ago: every claim fails.
func TestCase_D10_TheObserverWasPaused(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		for _, name := range []string{"a", "b", "c"} {
			id, value := register(t, b.leases, name)
			b.setScore(t, id, value-1_000_000_000) // ended, as in a pause of Redis
		}
		seen, err := b.leases.List(t.Context())
		if err != nil || len(seen) != 3 {
			t.Fatal(seen, err)
		}
		for _, l := range seen {
			if _, err := b.leases.Beat(t.Context(), l.ID, l.Score); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range seen {
			if ok, err := b.leases.Claim(t.Context(), l.ID, l.Score); err != nil || ok {
				t.Errorf("%s, which is healthy, was claimed: %v, %v", l.ID, ok, err)
			}
		}
	})
}
