package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/relay"
)

// checkOneIDPerSeq says that no seq of an epoch ever stood for two events.
func checkOneIDPerSeq(t testing.TB, got []delivery) {
	t.Helper()
	type place struct {
		user  protocol.UserID
		epoch protocol.Epoch
		seq   protocol.Seq
	}
	ids := make(map[place]delivery)
	for _, d := range got {
		at := place{d.Pair.User, d.Pair.Epoch, d.Pair.Seq}
		if before, ok := ids[at]; ok && before.ID != d.ID && at.seq > 0 {
			t.Errorf("seq %d of %s stood for event %d and for event %d", at.seq, at.user, before.N, d.N)
		}
		ids[at] = d
	}
}

// lazy has few renewals, so that it is an event's own pipeline that meets a broken
// connection first.
func lazy(name string) relay.Config {
	cfg := quick(name)
	cfg.Lease, cfg.Renew, cfg.Copy = 20*time.Second, 5*time.Second, 5*time.Second
	cfg.Tick, cfg.RedisLoss = 5*time.Second, 15*time.Second
	return cfg
}

// save makes the state that a restart goes back to.
func (w *world) save() {
	w.t.Helper()
	if err := w.rdb.Save(context.Background()).Err(); err != nil {
		w.t.Fatal(err)
	}
}

// T06: Redis restarts without the last stage 1 and stage 2 while the relay lives
// on; T34: it meets the broken connection by an event of its own, or by nothing.
func TestTrace_T06_T34_RedisRestartsOlder(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]relay.Config{"renewal meets it": quick("r"), "event meets it": lazy("r")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testkit.OwnRedis(t)
			w := newWorld(t, s)
			a := w.instance("a")
			a.connect("u")
			w.relay(cfg).ready()
			for n := 1; n <= 5; n++ {
				w.publish(event(n, "u"))
			}
			a.await(10*time.Second, "u", 5)
			w.save()
			for n := 6; n <= 10; n++ {
				w.publish(event(n, "u"))
			}
			before := len(a.await(10*time.Second, "u", 10))
			if before != 10 {
				t.Fatal(before)
			}
			s.Restart(t)
			again := &instance{w: w, id: a.id, streams: a.streams}
			w.publish(event(11, "u"))
			got := again.await(20*time.Second, "u", 6)
			checkOneIDPerSeq(t, append(a.got, again.got...))
			checkOrder(t, got[len(got)-6:], 6, 11)
		})
	}
}

// T07: between stage 1 and stage 2 Redis restarts older. The seqs of stage 1 are
// thrown away.
func TestTrace_T07_RestartsOlderBetweenTheStages(t *testing.T) {
	t.Parallel()
	s := testkit.OwnRedis(t)
	w := newWorld(t, s)
	a := w.instance("a")
	a.connect("u")
	f := &fault{}
	w.relay(quick("r"), f.hook).ready()
	w.publish(event(1, "u"), event(2, "u"))
	a.await(10*time.Second, "u", 2)
	w.save()
	w.publish(event(3, "u"))
	a.await(10*time.Second, "u", 3)
	restarted := false
	f.set(func(cmds []redis.Cmder, _ func([]redis.Cmder) error) ([]redis.Cmder, error) {
		if isInbox(cmds) && !restarted {
			restarted = true
			s.Restart(t)
		}
		return cmds, nil
	})
	again := &instance{w: w, id: a.id, streams: a.streams}
	w.publish(event(4, "u"))
	got := again.await(20*time.Second, "u", 2)
	checkOrder(t, got[len(got)-2:], 3, 4)
	checkOneIDPerSeq(t, append(a.got, again.got...))
	if last := got[len(got)-1]; last.Pair.Seq != 4 {
		t.Errorf("event 4 has seq %d", last.Pair.Seq)
	}
}

// T12: one shard loses its last second, the marker's shard does not. T35: the
// relay dies with it, and it is a standby that takes over.
func TestTrace_T12_T35_OneShardLosesWhatTheMarkerCovers(t *testing.T) {
	t.Parallel()
	for _, standby := range []bool{false, true} {
		t.Run(map[bool]string{false: "relay lives", true: "relay dies"}[standby], func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, testkit.OwnRedis(t))
			a := w.instance("a")
			a.connect("u")
			f := &fault{}
			w.relay(quick("r1"), f.hook).ready()
			for n := 1; n <= 5; n++ {
				w.publish(event(n, "u"))
			}
			a.await(10*time.Second, "u", 5)
			ctx := t.Context()
			older := w.rdb.Dump(ctx, "user:{u}:log").Val()
			for n := 6; n <= 10; n++ {
				w.publish(event(n, "u"))
			}
			a.await(10*time.Second, "u", 10)
			marker := w.rdb.HGet(ctx, relay.PartitionKey(0), "position").Val()
			eventually(t, 5*time.Second, "the marker is beyond them", func() bool {
				return w.rdb.HGet(ctx, relay.PartitionKey(0), "position").Val() != marker
			})
			if standby {
				w.relay(quick("r2"))
				f.dead.Store(true)
			}
			if err := w.rdb.RestoreReplace(ctx, "user:{u}:log", 0, older).Err(); err != nil {
				t.Fatal(err)
			}
			killClients(t, w)
			again := &instance{w: w, id: a.id, streams: a.streams}
			got := again.await(20*time.Second, "u", 5)
			checkOrder(t, got[len(got)-5:], 6, 10)
			checkOneIDPerSeq(t, append(a.got, again.got...))
		})
	}
}

// killClients breaks every connection but the one it goes over.
func killClients(t testing.TB, w *world) {
	t.Helper()
	if err := w.rdb.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err(); err != nil {
		t.Fatal(err)
	}
}

// T34: the connection breaks while idle. Nobody gets an error, and still the lease
// is taken again.
func TestTrace_T34_IdleConnectionBreaks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.OwnRedis(t))
	w.relay(quick("r")).ready()
	before := w.fence()
	killClients(t, w)
	eventually(t, 10*time.Second, "the lease is taken again", func() bool { return w.fence() > before })
}

// T13: an inbox answers nil, and the relay dies before the notification is written.
// The marker did not cover it.
func TestTrace_T13_DiesBeforeTheNotification(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		a := w.instance("a")
		a.connect("u")
		w.rdb.Del(t.Context(), inbox.Key(a.id))
		f := &fault{}
		f.set(func(cmds []redis.Cmder, _ func([]redis.Cmder) error) ([]redis.Cmder, error) {
			if isNotice(cmds) {
				f.dead.Store(true)
			}
			return cmds, nil
		})
		w.relay(quick("r1"), f.hook).ready()
		e := event(1, "u")
		w.publish(e)
		eventually(t, 10*time.Second, "the relay dies", f.dead.Load)
		if n := len(w.notified()); n != 0 {
			t.Fatalf("%d notifications before", n)
		}
		w.relay(quick("r2"))
		eventually(t, 15*time.Second, "a notification", func() bool { return len(w.notified()) == 1 })
		if n := w.notified()[0]; n.ID != e.ID {
			t.Errorf("notified %+v", n)
		}
	})
}
