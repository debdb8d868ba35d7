package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/relay"
)

// ticking has short ticks, so that what reaches back five minutes reaches back a
// second: 11 ticks.
func ticking(name string) relay.Config {
	cfg := quick(name)
	cfg.Tick, cfg.Copy = 100*time.Millisecond, 50*time.Millisecond
	cfg.RedisLoss, cfg.InboxMaxAge = 300*time.Millisecond, time.Second
	return cfg
}

// empty makes Redis forget everything, as a restart without a file does.
func (w *world) empty() {
	w.t.Helper()
	if err := w.rdb.FlushAll(context.Background()).Err(); err != nil {
		w.t.Fatal(err)
	}
}

// checkpoint is what MongoDB holds of a partition.
func (w *world) checkpoint(n int) *outbox.Checkpoint {
	w.t.Helper()
	cp, err := w.store.Checkpoint(context.Background(), n)
	if err != nil {
		w.t.Fatal(err)
	}
	return cp
}

// ticks waits until n more slots of a partition are written.
func (w *world) ticks(partition int, n int64) {
	w.t.Helper()
	tick := func() int64 {
		cp := w.checkpoint(partition)
		if cp == nil {
			return 0
		}
		return cp.Marker.Tick
	}
	first := tick()
	eventually(w.t, 30*time.Second, "ticks pass", func() bool { return tick() >= first+n })
}

func (w *world) notifiedOf(u protocol.UserID) int {
	n := 0
	for _, d := range w.notified() {
		if d.Pair.User == u {
			n++
		}
	}
	return n
}

// acked connects users who have acked an event of this epoch.
func (i *instance) ackedAll(users ...protocol.UserID) {
	i.w.t.Helper()
	ctx := context.Background()
	for _, u := range users {
		id := protocol.NewEventID()
		routed, err := i.w.reg.AppendCarefully(ctx, u, id)
		if err == nil {
			err = i.w.reg.Acked(ctx, u, protocol.Position{Epoch: routed.Epoch, Seq: routed.Seq, ID: id})
		}
		if err != nil {
			i.w.t.Fatal(err)
		}
	}
}

// ackedWelcome is what the session of a user does who has loaded his page after Redis
// became empty: the log of his new epoch is empty too, and its end is seq 0.
func (i *instance) ackedWelcome(u protocol.UserID) {
	i.w.t.Helper()
	ctx := context.Background()
	user, err := i.w.reg.Lookup(ctx, u)
	if err == nil {
		err = i.w.reg.Acked(ctx, u, protocol.Position{Epoch: user.Epoch})
	}
	if err != nil {
		i.w.t.Fatal(err)
	}
}

// T10: an event waits for notification, the marker is copied to MongoDB, Redis
// restarts empty. It is notified again, though it was routed long before what
// routing goes back to. T55: the relay that was about to do so dies, and the next
// one begins again, since no marker was written. Who is connected and has acked
// something, be it the welcome of an empty log, is left out.
func TestTrace_T10_T55_WaitingNotificationsAreLost(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		t.Run(map[bool]string{false: "relay lives", true: "relay dies"}[dies], func(t *testing.T) {
			t.Parallel()
			testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
				w := newWorld(t, s)
				a := w.instance("a")
				a.connect("here")
				first := w.relay(ticking("r1")).ready()
				a.connect("loaded")
				w.publish(event(1, "away", "here", "loaded"))
				eventually(t, 10*time.Second, "a notification", func() bool { return w.notifiedOf("away") == 1 })
				w.ticks(0, 30)
				first.stop()
				w.empty()
				a = w.instance("a")
				a.connect("here")
				a.ackedAll("here")
				a.connect("loaded")
				a.ackedWelcome("loaded")
				if dies {
					w.dieAtNotice()
				}
				w.relay(ticking("r3"))
				eventually(t, 15*time.Second, "notified again", func() bool { return w.notifiedOf("away") == 1 })
				w.publish(event(2, "here"))
				got := a.await(10*time.Second, "here", 1)
				if got[0].N != 2 || w.notifiedOf("here") != 0 || w.notifiedOf("loaded") != 0 {
					t.Errorf("got %+v, %d and %d notifications", got, w.notifiedOf("here"), w.notifiedOf("loaded"))
				}
			})
		})
	}
}

// dieAtNotice runs a relay until it is about to notify, and ends it there.
func (w *world) dieAtNotice() {
	w.t.Helper()
	f := &fault{}
	f.set(func(cmds []redis.Cmder, _ func([]redis.Cmder) error) ([]redis.Cmder, error) {
		if isNotice(cmds) {
			f.dead.Store(true)
		}
		return cmds, nil
	})
	r := w.relay(ticking("r2"), f.hook)
	eventually(w.t, 15*time.Second, "the relay dies", f.dead.Load)
	r.stop()
	if has := w.rdb.HExists(context.Background(), relay.PartitionKey(0), "position").Val(); has {
		w.t.Error("a marker was written before the range was notified")
	}
}

// T40, T43: the event was handed on (to notifications, or to another inbox) right
// before Redis became empty, unseen by the last copy. It was first routed not long
// before the marker: it is routed again.
func TestTrace_T40_T43_HandedOnBeforeRedisIsEmpty(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		a := w.instance("a")
		a.connect("u")
		w.relay(ticking("r")).ready()
		w.publish(event(1, "u"))
		a.await(10*time.Second, "u", 1) // read, and never shown to anybody: handed on
		w.ticks(0, 5)
		w.empty()
		eventually(t, 15*time.Second, "notified: he is not connected any more", func() bool { return w.notifiedOf("u") == 1 })
	})
}

// T56: the event pends at an instance; no relay works for longer than an event may
// wait; a relay comes back, and Redis becomes empty. Ticks count work.
func TestTrace_T56_TicksCountWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.EmbeddedRedis(t))
	a := w.instance("a")
	a.connect("u")
	first := w.relay(ticking("r1")).ready()
	w.publish(event(1, "u"))
	a.await(10*time.Second, "u", 1)
	w.ticks(0, 2)
	first.stop()
	stopped := time.Now()
	eventually(t, 10*time.Second, "longer than an event may wait passes", func() bool {
		return time.Since(stopped) > 2*ticking("").InboxMaxAge
	})
	w.relay(ticking("r2")).ready()
	w.empty()
	a = w.instance("a")
	a.connect("u")
	got := a.await(15*time.Second, "u", 1)
	checkOrder(t, got, 1, 1)
}

// T44: Redis is restored from an old dump; before the relay has caught up, Redis
// becomes empty. The place to go on from is the smallest of the last ticks, and the
// rewind is one of them.
func TestTrace_T44_OldDumpThenEmpty(t *testing.T) {
	t.Parallel()
	s := testkit.OwnRedis(t)
	w := newWorld(t, s)
	a := w.instance("a")
	a.connect("u")
	first := w.relay(ticking("r1")).ready()
	for n := 1; n <= 5; n++ {
		w.publish(event(n, "u"))
	}
	a.await(10*time.Second, "u", 5)
	w.ticks(0, 15)
	w.save()
	for n := 6; n <= 10; n++ {
		w.publish(event(n, "u"))
	}
	a.await(10*time.Second, "u", 10)
	w.ticks(0, 15)
	first.stop()
	s.Restart(t) // the old dump
	f := &fault{}
	f.set(func(cmds []redis.Cmder, _ func([]redis.Cmder) error) ([]redis.Cmder, error) {
		if appends(cmds) > 0 {
			f.dead.Store(true)
		}
		return cmds, nil
	})
	second := w.relay(ticking("r2"), f.hook)
	eventually(t, 15*time.Second, "the second relay dies, rewound", f.dead.Load)
	second.stop()
	w.empty()
	again := w.instance("a")
	again.connect("u")
	w.relay(ticking("r3"))
	got := again.await(15*time.Second, "u", 5)
	checkOrder(t, got[len(got)-5:], 6, 10)
}

// T15: Redis is empty and MongoDB's fence is 7.
func TestTrace_T15_FenceOfMongo(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		if err := w.store.TakeFence(t.Context(), 0, 1, 7); err != nil {
			t.Fatal(err)
		}
		a := w.instance("a")
		a.connect("u")
		w.relay(quick("r")).ready()
		if n := w.fence(); n != 8 {
			t.Errorf("fence %d", n)
		}
		w.publish(event(1, "u"))
		a.await(10*time.Second, "u", 1)
		eventually(t, 10*time.Second, "a checkpoint of fence 8", func() bool {
			cp := w.checkpoint(0)
			return cp != nil && cp.Fence == 8
		})
	})
}

// T53: two partitions, Redis empty. Each has its own moment since when notifications
// wait: all that waited is notified.
func TestTrace_T53_TwoPartitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.EmbeddedRedis(t))
	two := ticking("r1")
	two.Partitions = 2
	first := w.relay(two).ready()
	away := users(20)
	for n, u := range away {
		w.publish(event(n, u))
	}
	eventually(t, 10*time.Second, "20 notifications", func() bool { return len(w.notified()) == 20 })
	w.ticks(0, 20)
	w.ticks(1, 20)
	first.stop()
	w.empty()
	two.Name = "r2"
	w.relay(two)
	for _, u := range away {
		eventually(t, 15*time.Second, "notified again", func() bool { return w.notifiedOf(u) >= 1 })
	}
}

// After Redis came back empty, the relay waits for the instances that it last saw
// alive, so that events find their users.
func TestTake_WaitsForInstances(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.EmbeddedRedis(t))
	a, b := w.instance("a"), w.instance("b")
	a.connect("u")
	b.connect("v")
	cfg := ticking("r")
	cfg.Lease = 8 * time.Second
	r := w.relay(cfg).ready()
	eventually(t, 10*time.Second, "both are seen", func() bool { return r.Status().Sockets == 2 })
	w.publish(event(1, "u", "v"))
	a.await(10*time.Second, "u", 1)
	w.ticks(0, 2)
	w.empty()
	eventually(t, 10*time.Second, "it waits", func() bool {
		p := r.Status().Partitions
		return len(p) == 1 && p[0].State == "waiting"
	})
	a2 := w.instance("a")
	a2.connect("u")
	b2 := w.instance("b")
	b2.connect("v")
	a2.await(10*time.Second, "u", 1)
	b2.await(10*time.Second, "v", 1)
	if n := len(w.notified()); n != 0 {
		t.Errorf("%d notifications", n)
	}
}

// T58: the number of partitions changes from 2 to 1 to 2, and Redis is empty a
// moment later. Nothing is lost or doubled, and a relay with another number waits.
func TestTrace_T58_NumberOfPartitionsChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.EmbeddedRedis(t))
	a := w.instance("a")
	all := users(10)
	a.connect(all...)
	n := 0
	work := func(partitions int) *runningRelay {
		cfg := quick("r")
		cfg.Partitions = partitions
		r := w.relay(cfg).ready()
		n++
		for _, u := range all {
			w.publish(event(n, u))
			a.await(15*time.Second, u, n)
		}
		return r
	}
	work(2).stop()
	one := work(1)
	other := quick("other")
	other.Partitions = 2
	waiting := w.relay(other)
	eventually(t, 10*time.Second, "the other says that it waits", func() bool {
		err := waiting.Ready()
		return err != nil && one.Ready() == nil
	})
	if has := w.rdb.HExists(t.Context(), relay.PartitionKey(1), "position").Val(); has {
		t.Error("the marker of a partition that is no more is still there")
	}
	waiting.stop()
	one.stop()
	two := work(2)
	for _, u := range all {
		checkOrder(t, firsts(a.got)[u], 1, n)
		checkSeqs(t, firsts(a.got)[u])
	}
	w.empty()
	b := w.instance("a")
	b.connect(all...)
	eventually(t, 15*time.Second, "ready again", func() bool { return two.Ready() == nil })
	for _, u := range all {
		w.publish(event(n+1, u))
		got := b.await(15*time.Second, u, 1)
		if last := got[len(got)-1]; last.N != n+1 && len(b.await(15*time.Second, u, n+1)) == 0 {
			t.Errorf("%s got %+v", u, got)
		}
	}
}
