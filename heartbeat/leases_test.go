package heartbeat_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/protocol"
)

func TestLeasesListAndRunning(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		a, value := register(t, b.leases, "a")
		dead := protocol.NewInstanceID("dead")
		claimed := protocol.NewInstanceID("claimed")
		b.setScore(t, dead, 1000)
		b.setScore(t, claimed, 0)
		b.setScore(t, "no instance id", 5)

		list, err := b.leases.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := []heartbeat.Lease{
			{ID: claimed},
			{ID: dead, Until: time.UnixMilli(1000), Score: 1000},
			{ID: a, Until: time.UnixMilli(value), Running: true, Score: value},
		}
		if len(list) != len(want) {
			t.Fatalf("got %v", list)
		}
		for i := range want {
			if list[i] != want[i] {
				t.Errorf("lease %d: got %+v, want %+v", i, list[i], want[i])
			}
		}

		gone := protocol.NewInstanceID("gone")
		running, err := b.leases.Running(t.Context(), a, dead, claimed, gone)
		if err != nil || !running[a] || running[dead] || running[claimed] || running[gone] || len(running) != 4 {
			t.Errorf("running: %v, %v", running, err)
		}
		if none, err := b.leases.Running(t.Context()); err != nil || len(none) != 0 {
			t.Errorf("running without ids: %v, %v", none, err)
		}
	})
}

func TestBeatPutsTheEndOff(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id, first := register(t, b.leases, "a")
		last := first
		eventually(t, "the value rises", func() bool {
			value, err := b.leases.Beat(t.Context(), id, last)
			if err != nil || value < last {
				t.Fatalf("beat after %d: %d, %v", last, value, err)
			}
			last = value
			return value > first
		})
		if s, _ := b.score(t, id); s != last {
			t.Errorf("stored %d, answered %d", s, last)
		}
	})
}

func TestBeatIsLost(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id, value := register(t, b.leases, "a")
		for name, change := range map[string]func(){
			"missing: Redis is empty":            func() { b.rdb.ZRem(t.Context(), key, string(id)) },
			"claimed or superseded":              func() { b.setScore(t, id, 0) },
			"lower: Redis went back, it runs":    func() { b.setScore(t, id, value-1) },
			"lower: Redis went back, it is over": func() { b.setScore(t, id, 1000) },
		} {
			change()
			before, there := b.score(t, id)
			if _, err := b.leases.Beat(t.Context(), id, value); !errors.Is(err, heartbeat.ErrLost) {
				t.Errorf("%s: %v", name, err)
			}
			if after, still := b.score(t, id); after != before || still != there {
				t.Errorf("%s: a lost beat changed the lease from %d to %d", name, before, after)
			}
		}
	})
}

func TestBeatWhoseReplyWasLost(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id, value := register(t, b.leases, "a")
		b.faults.swallow.Store(1)
		if _, err := b.leases.Beat(t.Context(), id, value); !errors.Is(err, errFault) {
			t.Fatalf("the fault did not show: %v", err)
		}
		if _, err := b.leases.Beat(t.Context(), id, value); err != nil {
			t.Errorf("a greater value than the last confirmed is ours: %v", err)
		}
	})
}

func TestClaim(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id, value := register(t, b.leases, "a")
		claim := func(seen int64) bool {
			t.Helper()
			ok, err := b.leases.Claim(t.Context(), id, seen)
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		if claim(value) {
			t.Error("claimed a lease that runs")
		}
		b.setScore(t, id, 2000)
		if claim(1000) {
			t.Error("claimed a lease that has changed since it was seen")
		}
		if !claim(2000) {
			t.Error("an ended lease as seen was not claimed")
		}
		if !claim(0) {
			t.Error("the next reaper can't go on with a claimed lease")
		}
		if err := b.leases.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if claim(0) {
			t.Error("claimed a lease that is gone")
		}
	})
}

func TestTrace_T47_ClaimAndBeatAtTheSameMoment(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id, _ := register(t, b.leases, "a")
		for round := range 150 {
			const ended = 5000
			b.setScore(t, id, ended)
			var beats, claims int
			var wg sync.WaitGroup
			var mu sync.Mutex
			start := make(chan struct{})
			for range 3 {
				wg.Go(func() {
					<-start
					if _, err := b.leases.Beat(t.Context(), id, ended); err == nil {
						mu.Lock()
						beats++
						mu.Unlock()
					} else if !errors.Is(err, heartbeat.ErrLost) {
						t.Error(err)
					}
				})
				wg.Go(func() {
					<-start
					ok, err := b.leases.Claim(t.Context(), id, ended)
					if err != nil {
						t.Error(err)
					}
					if ok {
						mu.Lock()
						claims++
						mu.Unlock()
					}
				})
			}
			close(start)
			wg.Wait()
			if (beats > 0) == (claims > 0) {
				t.Fatalf("round %d: %d beats and %d claims succeeded", round, beats, claims)
			}
			if s, _ := b.score(t, id); (s == 0) != (claims > 0) {
				t.Fatalf("round %d: %d claims, and the lease stands at %d", round, claims, s)
			}
		}
	})
}
