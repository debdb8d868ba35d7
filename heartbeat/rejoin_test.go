package heartbeat_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/protocol"
)

func TestRejoinKeepsTheOwnLease(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		old, oldValue := register(t, b.leases, "a")
		id, value, err := b.leases.Rejoin(t.Context(), "a", old)
		if err != nil || id == old || id.Name() != "a" {
			t.Fatalf("rejoined as %q: %v", id, err)
		}
		if s, _ := b.score(t, old); s != oldValue {
			t.Errorf("the own old lease changed to %d: its sessions still stand under it", s)
		}
		if s, _ := b.score(t, id); s != value {
			t.Errorf("stored %d, answered %d", s, value)
		}
	})
}

func TestTrace_T62_RedisGoesBackToTheKilledOne(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		a1, a1Value := register(t, b.leases, "a") // and is killed
		restore := b.snapshot(t)
		a2, value := register(t, b.leases, "a")
		restore()

		k := b.leases.Keep(a2, value, nil, nil)
		if err := k.Run(t.Context()); !errors.Is(err, heartbeat.ErrLost) {
			t.Fatalf("A2 did not notice: %v", err)
		}
		a3, _, err := b.leases.Rejoin(t.Context(), "a", a2)
		if err != nil {
			t.Fatalf("A2 ended: %v", err)
		}
		running, err := b.leases.Running(t.Context(), a1, a3)
		if err != nil || running[a1] || !running[a3] {
			t.Errorf("after the wait: %v, %v", running, err)
		}
		if s, _ := b.score(t, a1); s != 0 {
			t.Errorf("A1, ended at %d, could come back: it stands at %d", a1Value, s)
		}
	})
}

func TestTrace_T29_TwoProcessesOfOneName(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		a1, v1 := register(t, b.leases, "a")
		first, _ := keep(t, b.leases.Keep(a1, v1, nil, nil))
		a2, v2 := register(t, b.leases, "a")
		second, stop := keep(t, b.leases.Keep(a2, v2, nil, nil))

		if err := <-first; !errors.Is(err, heartbeat.ErrLost) {
			t.Fatalf("the first one goes on: %v", err)
		}
		_, _, err := b.leases.Rejoin(t.Context(), "a", a1)
		if !errors.Is(err, heartbeat.ErrSuperseded) {
			t.Fatalf("the first one flaps: %v", err)
		}
		stop()
		if err := <-second; err != nil {
			t.Errorf("the second one was disturbed: %v", err)
		}
	})
}

// Both of two processes lost their leases (Redis went back before either): the
// one that is back first stays.
func TestRejoinOfTwoProcesses(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		a1, a2 := protocol.NewInstanceID("a"), protocol.NewInstanceID("a")
		winner, value, err := b.leases.Rejoin(t.Context(), "a", a1)
		if err != nil {
			t.Fatal(err)
		}
		done, stop := keep(t, b.leases.Keep(winner, value, nil, nil))
		if _, _, err := b.leases.Rejoin(t.Context(), "a", a2); !errors.Is(err, heartbeat.ErrSuperseded) {
			t.Errorf("two of one name run: %v", err)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// An ended lease of the same name that nobody claimed yet may still be beaten:
// it must not go on beside the new one.
func TestRejoinClaimsTheEnded(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		other := protocol.NewInstanceID("a")
		b.setScore(t, other, 1000)
		if _, _, err := b.leases.Rejoin(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.leases.Beat(t.Context(), other, 1000); !errors.Is(err, heartbeat.ErrLost) {
			t.Errorf("two of one name run: %v", err)
		}
	})
}

func TestRejoinWaitsRedisOut(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		b.faults.away.Store(true)
		type joined struct {
			id  protocol.InstanceID
			err error
		}
		done := make(chan joined, 1)
		go func() {
			id, _, err := b.leases.Rejoin(t.Context(), "a")
			done <- joined{id, err}
		}()
		eventually(t, "it tries again", func() bool { return b.faults.awayErrs.Load() >= 2 })
		b.faults.swallow.Store(1) // the reply of the first one that gets through is lost
		b.faults.away.Store(false)
		j := <-done
		if j.err != nil {
			t.Fatal(j.err)
		}
		list, err := b.leases.List(t.Context())
		if err != nil || len(list) != 1 || list[0].ID != j.id {
			t.Errorf("the lost reply left a second one: %v, %v", list, err)
		}
	})
}

func TestRejoinEndsWithItsContext(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		other := protocol.NewInstanceID("a")
		b.setScore(t, other, time.Now().Add(time.Hour).UnixMilli())
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, _, err := b.leases.Rejoin(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if list, err := b.leases.List(t.Context()); err != nil || len(list) != 1 {
			t.Errorf("the one that gave up holds a lease: %v, %v", list, err)
		}
	})
}
