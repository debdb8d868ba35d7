package relay_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/relay"
)

func TestNotifier_NotifiesEachPairOnce(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s, web := newStand(t, r), newReceiver(t, nil)
		v := envelope(t, 1)
		s.hand(v, time.Now(), noLog("ann", "bob", "carol {x}%")...)
		s.hand(v, time.Now(), noLog("ann")...) // redelivered
		n := s.notifier(quickNotifier("n"), web.sink())
		s.empty(10 * time.Second)
		for _, id := range []string{"ann", "bob", "carol%20{x}%25"} {
			if got := web.got(v, protocol.UserID(id)); got != 1 {
				t.Errorf("%s was notified %d times", id, got)
			}
		}
		if m := s.mark(v, "carol {x}%"); m.State != inbox.MarkSent {
			t.Errorf("mark %v", m)
		}
		key := "socket:notified:{" + v.ID.String() + ".carol %7Bx%7D%25}"
		if ttl := s.rdb.PTTL(t.Context(), key).Val(); ttl < 23*time.Hour || ttl > 24*time.Hour {
			t.Errorf("the mark stays %v", ttl)
		}
		eventually(t, 5*time.Second, "it is counted", func() bool {
			o := n.outcomes(t)
			return o["sent"] == 3 && o["duplicate"] == 1
		})
		if ids, calls := web.total(); ids != 3 || calls != 3 {
			t.Errorf("%d ids in %d calls", ids, calls)
		}
		if err := n.Ready(); err != nil {
			t.Error(err)
		}
	})
}

func TestNotifier_Body(t *testing.T) {
	t.Parallel()
	s, web := newStand(t, testkit.FirstRedis(t)), newReceiver(t, nil)
	v, at := envelope(t, 7), time.Now().Add(-time.Minute)
	s.hand(v, at, noLog("ann")...)
	cfg := quickNotifier("n")
	cfg.Grace = 30 * time.Second // over since half a minute
	s.notifier(cfg, web.sink())
	s.empty(10 * time.Second)
	var body struct {
		Type      string
		Timestamp time.Time
		Data      struct {
			User, Reason string
			Event        json.RawMessage
		}
	}
	if err := json.Unmarshal(web.bodies[v.ID.String()+".ann"], &body); err != nil {
		t.Fatal(err)
	}
	if body.Type != "notification" || body.Data.User != "ann" || body.Data.Reason != "offline" || string(body.Data.Event) != string(v.Body) {
		t.Errorf("body %+v", body)
	}
	if body.Timestamp.UnixMilli() != at.UnixMilli() {
		t.Errorf("timestamp %v, want %v", body.Timestamp, at)
	}
}

// What is judged not to be notified, and settled.
func TestNotifier_Skips(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s, web := newStand(t, r), newReceiver(t, nil)
		old := time.Now().Add(-time.Minute)
		expired := envelope(t, 1, func(e *protocol.Event) { e.ExpiresAt = old })
		s.hand(expired, old, noLog("ann")...)
		revoked := envelope(t, 2, func(e *protocol.Event) { e.Time = old })
		if err := s.reg.Revoke(t.Context(), "bob", time.Now().Add(-30*time.Second)); err != nil {
			t.Fatal(err)
		}
		s.hand(revoked, old, noLog("bob")...)
		later := envelope(t, 3)
		s.hand(later, old, noLog("bob")...)
		muted := envelope(t, 4, func(e *protocol.Event) { e.SkipNotify = true })
		s.hand(muted, old, noLog("ann")...)
		acked, ahead := envelope(t, 5), envelope(t, 6)
		c := s.connect("carol", acked, ahead)
		s.acked("carol", c.Epoch, 1, acked)
		s.hand(acked, old, protocol.Pair{User: "carol", Epoch: c.Epoch, Seq: 1})
		s.hand(ahead, old, protocol.Pair{User: "carol", Epoch: c.Epoch, Seq: 2})
		other := envelope(t, 7)
		s.connect("dave")
		s.hand(other, old, protocol.Pair{User: "dave", Epoch: protocol.NewEpoch(), Seq: 1})

		n := s.notifier(quickNotifier("n"), web.sink())
		s.empty(10 * time.Second)
		for v, u := range map[*protocol.Envelope]protocol.UserID{later: "bob", ahead: "carol", other: "dave"} {
			if web.got(v, u) != 1 {
				t.Errorf("event %s was notified %d times", v.Body, web.got(v, u))
			}
		}
		if ids, _ := web.total(); ids != 3 {
			t.Errorf("%d notifications", ids)
		}
		want := map[string]int{"sent": 3, "expired": 1, "revoked": 1, "muted": 1, "acked": 1}
		eventually(t, 5*time.Second, "outcomes", func() bool { return fmt.Sprint(n.outcomes(t)) == fmt.Sprint(want) })
	})
}

// A user whose keys are of the wrong type is notified: rather twice than never.
func TestNotifier_BrokenKeysOfAUser(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s, web := newStand(t, r), newReceiver(t, nil)
		s.rdb.Set(t.Context(), "user:{ann}:at", "nonsense", 0)
		v := envelope(t, 1)
		s.hand(v, time.Now(), protocol.Pair{User: "ann", Epoch: protocol.NewEpoch(), Seq: 1})
		broken := envelope(t, 2)
		s.rdb.LPush(t.Context(), inbox.NotifiedKey(broken.ID, "bob"), "nonsense")
		s.hand(broken, time.Now(), noLog("bob")...)
		cfg := quickNotifier("n")
		cfg.Limit = 2 * time.Second
		s.notifier(cfg, web.sink())
		s.empty(15 * time.Second)
		if web.got(v, "ann") != 1 {
			t.Error("ann was not notified")
		}
		if n := s.rdb.XLen(t.Context(), inbox.DeadNotification).Val(); n != 1 {
			t.Errorf("%d dead letters for a mark that can't be written", n)
		}
	})
}

func TestNotifier_BadEntries(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s, web := newStand(t, r), newReceiver(t, nil)
		s.rdb.XAdd(t.Context(), badNotification())
		good := envelope(t, 1)
		lost := s.hand(good, time.Now(), noLog("lost")...)
		s.readAs("dead")
		s.rdb.XDel(t.Context(), inbox.Notifications, lost) // its body is gone, the pending entry is not
		s.hand(good, time.Now(), noLog("ann")...)
		n := s.notifier(quickNotifier("n"), web.sink())
		s.empty(15 * time.Second)
		dead := s.rdb.XRange(t.Context(), inbox.DeadNotification, "-", "+").Val()
		if len(dead) != 1 || dead[0].Values["entry.b"] != "nonsense" || dead[0].Values["reason"] == "" {
			t.Errorf("dead letters %v", dead)
		}
		if web.got(good, "ann") != 1 {
			t.Error("the good one was not notified")
		}
		if text := n.log.String(); strings.Contains(text, "nonsense") {
			t.Errorf("a payload is in the log: %s", text)
		}
	})
}

func TestNotifier_FailuresBackOffAndEnd(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		var down = map[string]bool{}
		var mu sync.Mutex
		web := newReceiver(t, func(_ int, id string, w http.ResponseWriter) {
			mu.Lock()
			defer mu.Unlock()
			if strings.HasSuffix(id, ".never") || !down[id] {
				down[id] = true
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		s := newStand(t, r)
		v := envelope(t, 1)
		entry := s.hand(v, time.Now(), noLog("ann", "never", "bob")...)
		cfg := quickNotifier("n")
		cfg.Limit = 2 * time.Second
		n := s.notifier(cfg, web.sink())
		s.empty(20 * time.Second)
		if web.got(v, "ann") != 1 || web.got(v, "bob") != 1 || web.got(v, "never") != 0 {
			t.Errorf("taken: %v", web.taken)
		}
		if tries := web.all[v.ID.String()+".never"]; tries < 3 || tries > 100 {
			t.Errorf("%d tries", tries)
		}
		if m := s.mark(v, "never"); m.State != inbox.MarkDead {
			t.Errorf("mark %v", m)
		}
		dead := s.rdb.XRange(t.Context(), inbox.DeadNotification, "-", "+").Val()
		if len(dead) != 1 || dead[0].Values["origin"] != entry {
			t.Fatalf("dead letters %v", dead)
		}
		letter := inbox.Raw{ID: "1-1", Fields: map[string]string{}}
		for k, value := range dead[0].Values {
			letter.Fields[strings.TrimPrefix(k, "entry.")] = fmt.Sprint(value)
		}
		note, err := inbox.DecodeNotification(letter)
		if err != nil || len(note.Item.Pairs) != 1 || note.Item.Pairs[0].User != "never" {
			t.Errorf("the dead letter holds %v, %v", note.Item.Pairs, err)
		}
		if o := n.outcomes(t); o["sent"] != 2 || o["dead"] != 1 {
			t.Errorf("outcomes %v", o)
		}
	})
}

// A pair that fails holds up none behind it, and neither do many.
func TestNotifier_PoisonHoldsUpNobody(t *testing.T) {
	t.Parallel()
	t.Run("refused", func(t *testing.T) { t.Parallel(); poison(t, http.StatusBadRequest, time.Minute) })
	t.Run("failing", func(t *testing.T) { t.Parallel(); poison(t, http.StatusInternalServerError, time.Second) })
}

func poison(t *testing.T, status int, backoff time.Duration) {
	web := newReceiver(t, func(_ int, id string, w http.ResponseWriter) {
		if strings.HasSuffix(id, ".poison") {
			w.WriteHeader(status)
		}
	})
	s := newStand(t, testkit.FirstRedis(t))
	cfg := quickNotifier("n")
	cfg.MaxHeld, cfg.BackoffMost = 8, backoff
	cfg.ClaimIdle, cfg.Renew = 900*time.Millisecond, 200*time.Millisecond
	var good []*protocol.Envelope
	for i := range 60 {
		v := envelope(t, i)
		if i%2 == 0 {
			s.hand(v, time.Now(), noLog("poison")...)
		} else {
			s.hand(v, time.Now(), noLog("ann")...)
			good = append(good, v)
		}
	}
	s.notifier(cfg, web.sink())
	eventually(t, 30*time.Second, "the good ones are notified", func() bool {
		n := 0
		for _, v := range good {
			n += web.got(v, "ann")
		}
		return n == len(good)
	})
}

func TestNotifier_DisabledEndpoint(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		web := newReceiver(t, func(_ int, _ string, w http.ResponseWriter) { w.WriteHeader(http.StatusGone) })
		s := newStand(t, r)
		cfg := quickNotifier("n")
		cfg.Concurrency, cfg.Limit = 1, 7*time.Second
		n := s.notifier(cfg, web.sink())
		first := envelope(t, 1)
		s.hand(first, time.Now(), noLog("ann")...)
		eventually(t, 10*time.Second, "the alarm", func() bool { return n.Status().SinkState == relay.SinkDisabled })
		second := envelope(t, 2)
		s.hand(second, time.Now(), noLog("ann")...)
		if err := n.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
		if a := n.Status().Alarms; len(a) != 1 || n.counts(t, "lastmile_notifier_sink_disabled")[""] != 1 || !strings.Contains(n.log.String(), "level=ERROR") {
			t.Errorf("alarms %v", a)
		}
		s.empty(30 * time.Second) // past the limit: the dead letters
		if _, calls := web.total(); calls != 1 {
			t.Errorf("%d calls", calls)
		}
		for _, v := range []*protocol.Envelope{first, second} {
			if m := s.mark(v, "ann"); m.State != inbox.MarkDead {
				t.Errorf("mark %v", m)
			}
		}
		if n := s.rdb.XLen(t.Context(), inbox.DeadNotification).Val(); n != 2 {
			t.Errorf("%d dead letters", n)
		}
	})
}

// A receiver that is down is asked by few, and all are notified when it is back.
func TestNotifier_SinkDownAndBack(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		const down = 60
		web := newReceiver(t, func(n int, _ string, w http.ResponseWriter) {
			if n <= down {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		s := newStand(t, r)
		cfg := quickNotifier("n")
		n := s.notifier(cfg, web.sink())
		events := make([]*protocol.Envelope, 200)
		for i := range events {
			events[i] = envelope(t, i)
			s.hand(events[i], time.Now(), noLog("ann")...)
		}
		eventually(t, 10*time.Second, "it is seen to fail", func() bool { return n.Status().SinkState == relay.SinkFailing })
		s.empty(40 * time.Second)
		for _, v := range events {
			if web.got(v, "ann") != 1 {
				t.Fatalf("event %s was notified %d times", v.Body, web.got(v, "ann"))
			}
		}
		if _, calls := web.total(); calls != down+len(events) {
			t.Errorf("%d calls", calls)
		}
		if n.Status().SinkState != relay.SinkWell {
			t.Errorf("sink is %s", n.Status().SinkState)
		}
	})
}

// One event, one owner of the decision: acked or notified, never neither, never twice.
func TestCase_D15_AckedOrNotified(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s, web := newStand(t, r), newReceiver(t, nil)
		s.notifier(quickNotifier("a"), web.sink())
		s.notifier(quickNotifier("b"), web.sink())
		const runs = 100
		var work sync.WaitGroup
		acked := make([]bool, runs)
		events := make([]*protocol.Envelope, runs)
		for i := range runs {
			u := protocol.UserID(fmt.Sprintf("u%d", i))
			events[i] = envelope(t, i)
			c := s.connect(u, events[i])
			s.hand(events[i], time.Now(), protocol.Pair{User: u, Epoch: c.Epoch, Seq: 1})
			if acked[i] = rand.IntN(3) > 0; acked[i] {
				pause := rand.N(120 * time.Millisecond) // before, at, and after the end of the grace
				work.Go(func() {
					<-time.After(pause)
					s.acked(u, c.Epoch, 1, events[i])
				})
			}
		}
		work.Wait()
		s.empty(20 * time.Second)
		for i, v := range events {
			got := web.got(v, protocol.UserID(fmt.Sprintf("u%d", i)))
			if got > 1 || got == 0 && !acked[i] {
				t.Errorf("event %d: acked %t, notified %d times", i, acked[i], got)
			}
		}
	})
}

func TestNotifier_SecondStartOfOneName(t *testing.T) {
	t.Parallel()
	s, web := newStand(t, testkit.FirstRedis(t)), newReceiver(t, nil)
	first, err := relay.NewNotifier(quickNotifier("n"), s.redis.Server(), web.sink())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- first.Run(t.Context()) }()
	eventually(t, 10*time.Second, "the first is ready", func() bool { return first.Ready() == nil })
	second := s.notifier(quickNotifier("n"), web.sink())
	select {
	case err := <-ended:
		if !errors.Is(err, heartbeat.ErrSuperseded) {
			t.Errorf("the first ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the first goes on")
	}
	eventually(t, 10*time.Second, "the second is ready", func() bool { return second.Ready() == nil })
}

func TestNotifierConfig_Validate(t *testing.T) {
	t.Parallel()
	bad := relay.NotifierConfig{Grace: time.Hour, Limit: time.Minute, MarkAge: time.Second, Concurrency: -1, ClaimIdle: time.Second, Renew: time.Second, Lease: time.Second}
	err := bad.Validate()
	for _, field := range []string{"name", "mark age", "grace", "concurrency", "claim idle", "heartbeat lease"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is missing in %v", field, err)
		}
	}
	if err := (relay.NotifierConfig{Name: "n"}).Validate(); err != nil {
		t.Error(err)
	}
	if _, err := relay.NewNotifier(bad, nil, nil); err == nil {
		t.Error("made")
	}
}
