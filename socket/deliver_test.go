package socket_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/socket"
)

func TestDelivery(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		c := connect(t, a, "u")
		w := c.welcome(1)
		if w.Recovered || w.User != "u" || w.Instance != a.Instance() || w.Epoch == "" || w.Seq != 0 || !w.ID.IsZero() ||
			w.PingInterval != 25000 || w.MaxFrame != protocol.MaxClientFrame {
			t.Errorf("welcome: %+v", w)
		}
		want := names("e", 20)
		for _, name := range want {
			r.publish(name, "u")
		}
		c.sees(want...)
		r.settled(a.Instance())
		c.drop()
		testkit.Eventually(t, patience, "session has left", func() bool {
			u, err := r.reg.Lookup(t.Context(), "u")
			return err == nil && len(u.Locations) == 0 && u.Acked == 20
		})
	})
}

func TestTwoSessionsOfOneUser(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a, b := r.start("a").ready(), r.start("b").ready()
		c1, c2, c3 := connect(t, a, "u"), connect(t, a, "u", hello{"quiet": true}), connect(t, b, "u")
		want := names("e", 5)
		for _, name := range want {
			r.publish(name, "u")
		}
		c1.sees(want...)
		c2.sees(want...)
		c3.sees(want...)
		r.settled(a.Instance()) // one ack of the user is enough
		r.settled(b.Instance())
	})
}

func TestResumeAtTheOtherServer(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a, b := r.start("a").ready(), r.start("b").ready()
		c := connect(t, a, "u")
		r.publish("e1", "u")
		c.sees("e1")
		r.settled(a.Instance())
		c.drop()
		r.publish("e2", "u")
		r.publish("e3", "u")
		c = c.resumed(b, "u")
		if w := c.welcome(1); !w.Recovered || w.Seq != 1 {
			t.Errorf("welcome: %+v", w)
		}
		r.publish("e4", "u")
		c.sees("e2", "e3", "e4")
		r.settled(b.Instance())
	})
}

func TestCase_F02_RecoveredEventsAdvanceThePosition(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		c := connect(t, a, "u")
		c.drop()
		for _, name := range names("e", 3) {
			r.publish(name, "u")
		}
		for i, replayed := range []int{3, 0, 0} {
			c = c.resumed(a, "u")
			c.sees(names("e", replayed)...)
			if w := c.welcome(1); !w.Recovered {
				t.Errorf("connection %d: %+v", i, w)
			}
			c.drop()
		}
	})
}

func TestCase_F04_AnEpochThatIsGone(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		c := connect(t, a, "u")
		for _, name := range names("e", 3) {
			r.publish(name, "u")
		}
		c.sees(names("e", 3)...)
		c.drop()
		a.stop()
		if err := a.wait(); err != nil {
			t.Fatal(err)
		}
		if err := r.rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		b := r.start("b").ready()
		c = c.resumed(b, "u") // one reconnect, and it is told where it is
		if w := c.welcome(1); w.Recovered || w.Seq != 0 {
			t.Errorf("welcome: %+v", w)
		}
		r.publish("e9", "u")
		c.sees("e9")
		r.settled(b.Instance())
	})
}

func TestCase_D01_AnOldConnectionsEndLeavesTheNewOne(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a, b := r.start("a").ready(), r.start("b").ready()
		old := connect(t, a, "u")
		c := connect(t, b, "u")
		old.drop()
		testkit.Eventually(t, patience, "one location", func() bool {
			u, err := r.reg.Lookup(t.Context(), "u")
			return err == nil && len(u.Locations) == 1 && u.Locations[0].Instance == b.Instance()
		})
		r.publish("e1", "u")
		c.sees("e1")
	})
}

func TestCase_D03_PairsFollowTheUser(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a, b := r.start("a").ready(), r.start("b").ready()
		c := connect(t, a, "u", hello{"quiet": true}) // half-open: it acks nothing
		r.publish("e1", "u")
		c.sees("e1")
		next := connect(t, b, "u", hello{"quiet": true})
		c.drop()
		next.ackAll()
		r.settled(a.Instance())
		r.settled(b.Instance())

		// Read by a server that does not hold the user any more.
		env := r.event("e2", "u")
		routed := r.append(env, "u")[0]
		r.enter(a.Instance(), inbox.Entry{Batch: protocol.Batch{Items: []protocol.Item{
			{Event: env, Pairs: []protocol.Pair{{User: "u", Epoch: routed.Epoch, Seq: routed.Seq}}}}}})
		next.sees("e2")
		r.settled(a.Instance())
		r.settled(b.Instance())
		if n := len(r.notified()); n != 0 {
			t.Errorf("%d notified", n)
		}
	})
}

func TestNobodyLeftIsNotified(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		c := connect(t, a, "u", hello{"quiet": true})
		c.ackAll()
		c.mu.Lock()
		c.quiet = true
		c.mu.Unlock()
		env := r.publish("e1", "u")
		c.sees("e1") // shown, not acked
		c.drop()
		r.waitNotified("u", env)
		r.settled(a.Instance())
	})
}

func TestTrace_T01_HalfOpenReplayOnOneServer(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		c := connect(t, a, "u")
		c.drop()
		testkit.Eventually(t, patience, "left", func() bool { return a.Status().Sessions == 0 })
		env := r.event("e1", "u")
		routed := r.append(env, "u")[0]
		c.mu.Lock()
		c.quiet = true
		p := c.position
		c.mu.Unlock()
		next := dial(t, a.url(), hello{"quiet": true, "token": token("u"), "acks": true, "resume": map[string]any{"epoch": p.Epoch, "seq": p.Seq, "id": p.ID}})
		next.sees("e1")
		r.enter(a.Instance(), inbox.Entry{Batch: protocol.Batch{Items: []protocol.Item{
			{Event: env, Pairs: []protocol.Pair{{User: "u", Epoch: routed.Epoch, Seq: routed.Seq}}}}}})
		testkit.Eventually(t, patience, "entry was read", func() bool { return a.Status().Inbox.Entries > 0 })
		next.drop()
		r.waitNotified("u", env)
		r.settled(a.Instance())
	})
}

func TestPlainClientsAckByWriting(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		c := dial(t, a.url(), hello{"quiet": true, "token": token("u")})
		c.welcome(1)
		r.publish("e1", "u")
		c.sees("e1")
		r.settled(a.Instance())
	})
}

func TestEphemeralEventsAreNeitherKeptNorMoved(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		c := connect(t, a, "u")
		give := func(name string, age time.Duration, user protocol.UserID) {
			e := &protocol.Event{To: []protocol.UserID{"u"}, Type: "typing", Data: []byte(`{"name":"` + name + `"}`), Ephemeral: true, Time: time.Now().Add(-age)}
			e.Prepare()
			env, err := protocol.NewEnvelope(e)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // routed twice: shown once
				r.enter(a.Instance(), inbox.Entry{Batch: protocol.Batch{Items: []protocol.Item{{Event: env, Pairs: []protocol.Pair{{User: user}}}}}})
			}
		}
		give("old", time.Minute, "u")
		give("new", 0, "u")
		give("else", 0, "nobody")
		r.publish("e1", "u")
		c.sees("new", "e1")
		r.settled(a.Instance())
		if n := len(r.notified()); n != 0 || c.doubles != 0 {
			t.Errorf("%d notified, %d doubles", n, c.doubles)
		}
	})
}

func TestRunTwiceAndBadConfig(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.EmbeddedRedis(t))
	a := r.start("a").ready()
	if err := a.Run(t.Context()); err == nil {
		t.Error("ran twice")
	}
	_, err := socket.New(socket.Config{Name: "no spaces", Lease: time.Second, BeatInterval: time.Second}, r.redis.Server(), nil)
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) || len(joined.Unwrap()) < 3 {
		t.Errorf("want name, secret and lease, got %v", err)
	}
}
