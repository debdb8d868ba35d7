package relay_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// B20: one inbox key is a plain string. Two users get the event at once and once,
// the third is notified, and later events flow.
func TestCase_B20_PipelineErrorBlamedOnTheWrongCommand(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		names := []protocol.UserID{"u0", "u1", "u2"}
		at := make([]*instance, 3)
		for i, u := range names {
			at[i] = w.instance(fmt.Sprintf("s%d", i))
			at[i].connect(u)
		}
		w.rdb.Set(t.Context(), inbox.Key(at[1].id), "a plain string", 0)
		w.relay(quick("r")).ready()
		w.publish(event(1, names...), event(2, "u0", "u2"))
		for _, i := range []int{0, 2} {
			checkOrder(t, at[i].await(5*time.Second, names[i], 2), 1, 2)
			if len(at[i].got) != 2 {
				t.Errorf("%s got %d pairs, want 2", names[i], len(at[i].got))
			}
		}
		eventually(t, 5*time.Second, "one notification", func() bool { return len(w.notified()) == 1 })
		if n := w.notified()[0]; n.Pair.User != "u1" || n.N != 1 {
			t.Errorf("notified %+v", n)
		}
	})
}

// B20, the neighbour: the user's log is of the wrong type.
func TestCase_B20_LogOfTheWrongType(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		a := w.instance("a")
		a.connect("good", "bad")
		ctx := t.Context()
		w.rdb.Del(ctx, "user:{bad}:log")
		w.rdb.Set(ctx, "user:{bad}:log", "a plain string", 0)
		w.relay(quick("r")).ready()
		w.publish(event(1, "bad", "good"), event(2, "good"))
		checkOrder(t, a.await(5*time.Second, "good", 2), 1, 2)
		eventually(t, 5*time.Second, "one notification", func() bool { return len(w.notified()) == 1 })
		if n := w.notified()[0]; n.Pair.User != "bad" {
			t.Errorf("notified %+v", n)
		}
	})
}

// B21 (a): an entry with an id far in the future is in a live inbox.
func TestCase_B21_EntryIDFarInTheFuture(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		a := w.instance("a")
		a.connect("alice")
		err := w.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: inbox.Key(a.id), ID: "99999999999999-0",
			Values: []any{"v", "1", "c", `{"kick":"nobody","before":1}`}}).Err()
		if err != nil {
			t.Fatal(err)
		}
		w.relay(quick("r")).ready()
		w.publish(event(1, "alice"), event(2, "alice"))
		checkOrder(t, a.await(5*time.Second, "alice", 2), 1, 2)
	})
}

// E09: the relay is killed after half of the appends of a large recipient list.
func TestCase_E09_CrashInTheMiddleOfALargeRecipientList(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		all := users(100)
		at := make([]*instance, 5)
		for i := range at {
			at[i] = w.instance(fmt.Sprintf("s%d", i))
			at[i].connect(all[i*20 : (i+1)*20]...)
		}
		f := &fault{}
		w.relay(quick("r1"), f.hook).ready()
		f.set(func(cmds []redis.Cmder, send func([]redis.Cmder) error) ([]redis.Cmder, error) {
			if appends(cmds) < 100 {
				return cmds, nil
			}
			half := 0
			for done := 0; done < 50; half++ {
				if cmds[half].Name() == "exec" {
					done++
				}
			}
			f.dead.Store(true)
			return nil, send(cmds[:half])
		})
		w.publish(event(1, all...), event(2, all...))
		w.relay(quick("r2"))
		for i := range at {
			for _, u := range all[i*20 : (i+1)*20] {
				got := at[i].await(15*time.Second, u, 2)
				checkOrder(t, got, 1, 2)
				checkSeqs(t, got)
			}
		}
	})
}

// E11: one in ten pipelines fails, before or after Redis has done it, others are
// late. What a user sees first is in order.
func TestCase_E11_OrderUnderFailures(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		a := w.instance("a")
		a.connect("alice")
		f := &fault{}
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(11, 11))
		// Each failure goes back to where Redis may have lost something. A machine too slow to get from there to
		// the end between two failures would go on for ever, so there is a last one.
		const most = 40
		failures := most
		f.set(func(cmds []redis.Cmder, send func([]redis.Cmder) error) ([]redis.Cmder, error) {
			mu.Lock()
			dice, late := random.IntN(20), time.Duration(random.IntN(3))*time.Millisecond
			fails := dice <= 1 && failures > 0 && (appends(cmds) > 0 || isInbox(cmds))
			if fails {
				failures--
			}
			mu.Unlock()
			<-time.After(late)
			switch {
			case !fails:
				return cmds, nil
			case dice == 1:
				if err := send(cmds); err != nil {
					return nil, err
				}
			}
			return nil, errDead
		})
		w.relay(quick("r"), f.hook)
		for n := 1; n <= 500; n++ {
			w.publish(event(n, "alice"))
		}
		checkOrder(t, a.await(60*time.Second, "alice", 500), 1, 500)
		mu.Lock()
		defer mu.Unlock()
		if failures == most {
			t.Error("no failure was met")
		}
	})
}

// Recipients with several sessions on one instance get one pair, on two instances
// two; ephemeral events have no seq and are not notified; what is expired goes
// nowhere.
func TestRoute_WhoGetsWhat(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		a, b := w.instance("a"), w.instance("b")
		a.connect("two", "two", "both")
		b.connect("both")
		w.relay(quick("r")).ready()
		typing := event(1, "two", "off")
		typing.Ephemeral = true
		quiet := event(2, "off")
		quiet.SkipNotify = true
		late := event(3, "two", "off")
		late.Time = time.Now().Add(-time.Hour)
		late.ExpiresAt = time.Now().Add(-time.Minute)
		old := event(4, "two")
		old.Ephemeral, old.Time = true, time.Now().Add(-11*time.Second)
		w.publish(typing, quiet, late, old, event(5, "two", "both", "off"))
		b.await(5*time.Second, "both", 1)
		eventually(t, 5*time.Second, "a notification", func() bool { return len(w.notified()) > 0 })
		got := firsts(a.read())
		if len(a.got) != 3 || len(got["two"]) != 2 || got["two"][0].Pair.Seq != 0 || got["two"][1].Pair.Seq != 1 {
			t.Errorf("a got %+v", a.got)
		}
		if notes := w.notified(); len(notes) != 1 || notes[0].N != 5 {
			t.Errorf("notified %+v", notes)
		}
	})
}

// An instance without an inbox is gone: its users count as not connected there, and
// the fields that say so go.
func TestRoute_InstanceIsGone(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		gone, b := w.instance("gone"), w.instance("b")
		gone.connect("only", "both")
		b.connect("both")
		w.rdb.Del(t.Context(), inbox.Key(gone.id))
		w.relay(quick("r")).ready()
		w.publish(event(1, "only", "both"))
		b.await(5*time.Second, "both", 1)
		eventually(t, 5*time.Second, "a notification", func() bool { return len(w.notified()) == 1 })
		if n := w.notified()[0]; n.Pair.User != "only" {
			t.Errorf("notified %+v", n)
		}
		eventually(t, 5*time.Second, "stale fields are gone", func() bool {
			u, err := w.reg.Lookup(t.Context(), "only")
			return err == nil && len(u.Locations) == 0
		})
	})
}
