package relay_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/relay"
)

// E01: three relays, 100 events; one works. The active one is killed, and nothing
// is lost.
func TestCase_E01_SeveralRelays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.OwnRedis(t))
	a := w.instance("a")
	a.connect("u")
	relays := map[string]*testkit.Process{"r1": w.child("r1"), "r2": w.child("r2"), "r3": w.child("r3")}
	w.awaitOwner("")
	for n := 1; n <= 100; n++ {
		w.publish(event(n, "u"))
	}
	got := a.await(10*time.Second, "u", 100)
	checkOrder(t, got, 1, 100)
	checkSeqs(t, got)
	if len(a.got) != 100 {
		t.Errorf("%d pairs for 100 events", len(a.got))
	}
	active := w.owner()
	for n := 101; n <= 150; n++ {
		w.publish(event(n, "u"))
		if n == 120 {
			relays[active].Kill(t)
		}
	}
	got = a.await(15*time.Second, "u", 150)
	checkOrder(t, got, 1, 150)
	checkSeqs(t, got)
}

// owner is the name of the relay that holds partition 0.
func (w *world) owner() string {
	id, _ := w.rdb.HGet(context.Background(), relay.PartitionKey(0), "owner").Result()
	if len(id) < 13 {
		return ""
	}
	return id[:len(id)-13]
}

// awaitOwner waits until somebody other than the given relay has a marker of his.
func (w *world) awaitOwner(not string) string {
	w.t.Helper()
	eventually(w.t, 20*time.Second, "a relay takes over", func() bool {
		has, _ := w.rdb.HExists(context.Background(), relay.PartitionKey(0), "position").Result()
		return has && w.owner() != "" && w.owner() != not
	})
	return w.owner()
}

func (w *world) fence() int64 {
	v, _ := w.rdb.HGet(context.Background(), relay.PartitionKey(0), "fence").Result()
	n, _ := strconv.ParseInt(v, 10, 64)
	return n
}

// E02: the active relay is frozen past its lease; the standby takes over and routes
// 100 events; the frozen one wakes up. The marker never goes back, at most a batch
// is doubled, and the old one stands by.
func TestCase_E02_FrozenLeaderWakesUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.OwnRedis(t))
	a := w.instance("a")
	a.connect("u")
	relays := map[string]*testkit.Process{"r1": w.child("r1"), "r2": w.child("r2")}
	old := w.awaitOwner("")
	for n := 1; n <= 20; n++ {
		w.publish(event(n, "u"))
	}
	a.await(10*time.Second, "u", 20)
	relays[old].Freeze(t)
	w.awaitOwner(old)
	for n := 21; n <= 120; n++ {
		w.publish(event(n, "u"))
	}
	a.await(15*time.Second, "u", 120)
	fence := w.fence()
	watch := w.watchMarker()
	relays[old].Thaw(t)
	for n := 121; n <= 140; n++ {
		w.publish(event(n, "u"))
	}
	got := a.await(10*time.Second, "u", 140)
	checkOrder(t, got, 1, 140)
	checkSeqs(t, got)
	watch()
	if w.owner() == old || w.fence() != fence {
		t.Errorf("owner %s with fence %d, the one that took over had %d", w.owner(), w.fence(), fence)
	}
	if extra := len(a.got) - 140; extra > 20+512 {
		t.Errorf("%d pairs doubled", extra)
	}
}

// watchMarker fails the test if the marker in Redis goes back until stop is called.
func (w *world) watchMarker() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var last string
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			s, err := w.rdb.HGet(ctx, relay.PartitionKey(0), "position").Result()
			before, _ := relay.ParsePosition(last)
			if now, ok := relay.ParsePosition(s); err == nil && ok {
				if last != "" && now.Compare(before) < 0 {
					w.t.Errorf("marker went back from %s to %s", last, s)
				}
				last = s
			}
			<-tick.C
		}
	}()
	return func() { cancel(); <-done }
}

// E04: Redis is away for a while, with events arriving. Nothing is parked.
func TestCase_E04_OutageParksNothing(t *testing.T) {
	t.Parallel()
	s := testkit.OwnRedis(t)
	w := newWorld(t, s)
	a := w.instance("a")
	a.connect("u")
	r := w.relay(quick("r")).ready()
	s.Freeze(t)
	for n := 1; n <= 50; n++ {
		w.publish(event(n, "u"))
	}
	eventually(t, 20*time.Second, "the relay notices", func() bool { return r.Ready() != nil })
	s.Thaw(t)
	checkOrder(t, a.await(20*time.Second, "u", 50), 1, 50)
	if n := w.rdb.XLen(t.Context(), inbox.Dead).Val(); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	if n := w.dead(); n != 0 {
		t.Errorf("%d dead documents", n)
	}
	r.ready()
}

// Four partitions are shared by two relays, one of which comes later, and all fall
// to the one that is left.
func TestBalance_FourPartitionsTwoRelays(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		a := w.instance("a")
		all := users(40)
		a.connect(all...)
		four := func(name string) relay.Config { c := quick(name); c.Partitions = 4; return c }
		r1 := w.relay(four("r1")).ready()
		if n := r1.held(); n != 4 {
			t.Fatalf("the only relay holds %d partitions", n)
		}
		n := 0
		publish := func() {
			n++
			for _, u := range all {
				w.publish(event(n, u))
			}
		}
		publish()
		r2 := w.relay(four("r2"))
		publish()
		eventually(t, 20*time.Second, "two partitions each", func() bool { return r1.held() == 2 && r2.held() == 2 })
		publish()
		r1.stop()
		publish()
		eventually(t, 20*time.Second, "all four are the other's", func() bool { return r2.held() == 4 })
		for _, u := range all {
			got := a.await(10*time.Second, u, 4)
			checkOrder(t, got, 1, 4)
			checkSeqs(t, got)
		}
	})
}

// A stop gives leases up: the standby has the partition well before the lease would
// have ended.
func TestRun_StopHandsOver(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		long := func(name string) relay.Config {
			c := quick(name)
			c.Lease, c.Renew = 30*time.Second, time.Second
			return c
		}
		r1 := w.relay(long("r1")).ready()
		r2 := w.relay(long("r2"))
		eventually(t, 5*time.Second, "standby is ready", func() bool { return r2.Ready() == nil })
		began := time.Now()
		r1.stop()
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("stop took %v", took)
		}
		eventually(t, 5*time.Second, "standby has the partition", func() bool { return r2.held() == 1 })
	})
}
