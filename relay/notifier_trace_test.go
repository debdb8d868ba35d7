package relay_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// An event that was routed while its user had no log is looked up by id: he has
// connected since, it was routed again carefully, and he has acked it.
func TestTrace_T24_NoSeqIsLookedUpByID(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s, web := newStand(t, r), newReceiver(t, nil)
		acked, unseen := envelope(t, 1), envelope(t, 2)
		s.hand(acked, time.Now().Add(-time.Minute), noLog("ann")...)
		s.hand(unseen, time.Now().Add(-time.Minute), noLog("ann")...)
		c := s.connect("ann", acked, unseen)
		s.acked("ann", c.Epoch, 1, acked)
		n := s.notifier(quickNotifier("n"), web.sink())
		s.empty(10 * time.Second)
		if web.got(acked, "ann") != 0 || web.got(unseen, "ann") != 1 {
			t.Errorf("taken: %v", web.taken)
		}
		eventually(t, 5*time.Second, "outcomes", func() bool { return n.outcomes(t)["acked"] == 1 })
	})
}

// The server crashed before it had written the ack down, and the pair is handed over
// by the reaper, and once more: one notification.
func TestTrace_T25_AckWasNotWritten(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s, web := newStand(t, r), newReceiver(t, nil)
		v := envelope(t, 1)
		c := s.connect("ann", v)
		pair := protocol.Pair{User: "ann", Epoch: c.Epoch, Seq: 1}
		s.notifier(quickNotifier("n"), web.sink())
		s.hand(v, time.Now(), pair)
		s.hand(v, time.Now(), pair)
		s.empty(15 * time.Second)
		s.hand(v, time.Now(), pair) // later still
		s.empty(15 * time.Second)
		if _, calls := web.total(); calls != 1 {
			t.Errorf("%d calls", calls)
		}
	})
}

// The grace counts from the moment of the handing over, however old the event is: who
// comes back within it is not notified; without coming back he is, at its end.
func TestTrace_T26_GraceCountsFromTheEntry(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s, web := newStand(t, r), newReceiver(t, nil)
		old := func(e *protocol.Event) { e.Time = time.Now().Add(-35 * time.Second) }
		v, w := envelope(t, 1, old), envelope(t, 2, old)
		ann, bob := s.connect("ann", v), s.connect("bob", w)
		cfg := quickNotifier("n")
		cfg.Grace = 1500 * time.Millisecond
		s.notifier(cfg, web.sink())
		handed := time.Now()
		s.hand(v, handed, protocol.Pair{User: "ann", Epoch: ann.Epoch, Seq: 1})
		s.hand(w, handed, protocol.Pair{User: "bob", Epoch: bob.Epoch, Seq: 1})
		<-time.After(500 * time.Millisecond)
		s.acked("ann", ann.Epoch, 1, v)
		eventually(t, 10*time.Second, "bob is notified", func() bool { return web.got(w, "bob") == 1 })
		if waited := time.Since(handed); waited < cfg.Grace {
			t.Errorf("bob was notified after %v", waited)
		}
		s.empty(5 * time.Second)
		if web.got(v, "ann") != 0 {
			t.Error("ann was notified")
		}
	})
}

// N1 put PENDING and died; a second entry of the same pair reaches N2 first: it waits
// until N2 has taken the first one over. The other pair of that entry does not wait.
func TestTrace_T50_PendingOfADeadNotifier(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s, web := newStand(t, r), newReceiver(t, nil)
		v := envelope(t, 1)
		x := s.hand(v, time.Now(), noLog("ann")...)
		s.readAs("dead")
		s.take(v, "ann", x)
		s.hand(v, time.Now(), noLog("ann", "bob")...)
		n := s.notifier(hastyNotifier("n"), web.sink())
		eventually(t, 10*time.Second, "bob is notified", func() bool { return web.got(v, "bob") == 1 })
		if m := s.mark(v, "ann"); m.State == inbox.MarkPending && m.Entry != x {
			t.Errorf("ann was taken from the first entry: %v", m)
		}
		s.empty(20 * time.Second)
		if _, calls := web.total(); calls != 2 || web.got(v, "ann") != 1 {
			t.Errorf("%d calls, taken %v", calls, web.taken)
		}
		if m := s.mark(v, "ann"); m.State != inbox.MarkSent {
			t.Errorf("mark %v", m)
		}
		if n.counts(t, "lastmile_notifier_let_go_entries_total")[""] == 0 {
			t.Error("an entry that only waits was not let go")
		}
	})
}

// The marked entry does not exist any more: the next one takes the pair over at once.
func TestTrace_T50_TheMarkedEntryIsGone(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s, web := newStand(t, r), newReceiver(t, nil)
		v := envelope(t, 1)
		s.take(v, "ann", "1-1")
		s.rdb.Set(t.Context(), inbox.NotifiedKey(v.ID, "bob"), "nonsense", time.Hour)
		began := time.Now()
		s.hand(v, began, noLog("ann", "bob")...)
		s.notifier(hastyNotifier("n"), web.sink())
		s.empty(10 * time.Second)
		if web.got(v, "ann") != 1 || web.got(v, "bob") != 1 {
			t.Errorf("taken: %v", web.taken)
		}
	})
}

// A thousand pairs, half of them sent, and the notifier dies: the others are sent, the
// first half not again.
func TestTrace_T51_HalfOfAnEntryIsSent(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s := newStand(t, r)
		var f fatal
		web := newReceiver(t, func(n int, _ string, _ http.ResponseWriter) {
			if n == 500 {
				f.dead.Store(true)
			}
		})
		v, all := envelope(t, 1), users(1000)
		s.hand(v, time.Now(), noLog(all...)...)
		cfg := hastyNotifier("first")
		cfg.Concurrency = 1
		first := s.notifier(cfg, mortal{Sink: web.sink(), dead: &f.dead}, f.hook)
		eventually(t, 30*time.Second, "the first dies", f.dead.Load)
		first.stop()
		s.notifier(hastyNotifier("second"), web.sink())
		s.empty(40 * time.Second)
		if ids, calls := web.total(); ids != 1000 || calls > 1001 {
			t.Errorf("%d ids in %d calls", ids, calls)
		}
	})
}

// The webhook is down; Redis was emptied and the event handed over again; the user
// opens the page and leaves before it is loaded. He has acked nothing: notified.
func TestTrace_T54_OpenedAndNotLoaded(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s := newStand(t, r)
		var up atomic.Bool
		web := newReceiver(t, func(_ int, _ string, w http.ResponseWriter) {
			if !up.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		s.notifier(quickNotifier("n"), web.sink())
		v := envelope(t, 1)
		s.hand(v, time.Now(), noLog("ann")...)
		eventually(t, 10*time.Second, "a try", func() bool { _, calls := web.total(); return calls > 0 })
		c := s.connect("ann")
		if err := s.reg.Leave(t.Context(), "ann", c.Locations[0].Field); err != nil {
			t.Fatal(err)
		}
		up.Store(true)
		s.empty(10 * time.Second)
		if web.got(v, "ann") != 1 {
			t.Errorf("taken: %v", web.taken)
		}
	})
}

// The user had acked the event; Redis went back a second, his log broke, and his ack
// went with the epoch while a notifier that was killed still held the pair. His page
// was loaded again since, as the welcome asked: what is older is covered by that. A
// user who never acked that welcome is notified.
func TestNotifier_ReloadCoversOlderEpochs(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s, web := newStand(t, r), newReceiver(t, nil)
		v := envelope(t, 1)
		old := time.Now().Add(-time.Minute)
		for _, u := range []protocol.UserID{"ann", "bob"} {
			c := s.connect(u, v)
			s.acked(u, c.Epoch, 1, v)
			epoch, err := s.reg.Break(t.Context(), u, c.Epoch)
			if err != nil {
				t.Fatal(err)
			}
			if u == "ann" {
				if err := s.reg.Acked(t.Context(), u, protocol.Position{Epoch: epoch}); err != nil {
					t.Fatal(err)
				}
			}
			s.hand(v, old, protocol.Pair{User: u, Epoch: c.Epoch, Seq: 1})
		}
		n := s.notifier(quickNotifier("n"), web.sink())
		s.empty(10 * time.Second)
		if web.got(v, "ann") != 0 || web.got(v, "bob") != 1 {
			t.Errorf("taken: %v", web.taken)
		}
		eventually(t, 5*time.Second, "outcomes", func() bool { return n.outcomes(t)["acked"] == 1 })
	})
}

// X = {p, q} and Y = {q, p}: p was marked by X and q by Y, both were sent, and Redis
// went back to before either SENT. Held by nobody or by notifiers that are dead, they
// don't wait for each other for ever.
func TestTrace_T60_NoTwoEntriesWaitForEachOther(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s, web := newStand(t, r), newReceiver(t, nil)
		v := envelope(t, 1)
		x := s.hand(v, time.Now(), noLog("p", "q")...)
		y := s.hand(v, time.Now(), noLog("q", "p")...)
		s.readAs("dead")
		s.take(v, "p", x)
		s.take(v, "q", y)
		s.notifier(quickNotifier("a"), web.sink())
		s.notifier(quickNotifier("b"), web.sink())
		s.empty(30 * time.Second)
		if _, calls := web.total(); calls != 2 || web.got(v, "p") != 1 || web.got(v, "q") != 1 {
			t.Errorf("%d calls, taken %v", calls, web.taken)
		}
	})
}

// Entries that only wait would fill every bound, and the marked entries can't be
// claimed: they are let go, so there is room for the others.
func TestTrace_T61_WaitingEntriesMakeRoom(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s, web := newStand(t, r), newReceiver(t, nil)
		var waiting []*protocol.Envelope
		for i := range 20 {
			waiting = append(waiting, envelope(t, i))
			s.take(waiting[i], "ann", s.hand(waiting[i], time.Now(), noLog("ann")...))
		}
		s.readAs("alive, and slow")
		for _, v := range waiting {
			s.hand(v, time.Now(), noLog("ann")...)
		}
		good := envelope(t, 100)
		s.hand(good, time.Now(), noLog("ann")...)
		cfg := quickNotifier("n")
		cfg.MaxHeld, cfg.ClaimIdle, cfg.Renew = 4, time.Minute, time.Second
		s.notifier(cfg, web.sink())
		eventually(t, 15*time.Second, "the other one is notified", func() bool { return web.got(good, "ann") == 1 })
		if ids, _ := web.total(); ids != 1 {
			t.Errorf("%d were notified: %s", ids, fmt.Sprint(web.taken))
		}
	})
}
