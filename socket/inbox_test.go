package socket_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/socket"
)

// entryFor is an entry with one event of one user who has a log.
func (r *rig) entryFor(env *protocol.Envelope, user protocol.UserID) inbox.Entry {
	r.t.Helper()
	routed := r.append(env, user)[0]
	pair := protocol.Pair{User: user, Epoch: routed.Epoch, Seq: routed.Seq}
	return inbox.Entry{Batch: protocol.Batch{Items: []protocol.Item{{Event: env, Pairs: []protocol.Pair{pair}}}}}
}

func TestCase_B02_EntriesOlderThanTheGroup(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		b := r.start("b").ready()
		c := connect(t, b, "u")
		where, proxy := r.proxied()
		proxy.Delay(20 * time.Millisecond) // time between the lease and the group
		a := r.startAt(where, "a")
		var id protocol.InstanceID
		testkit.Eventually(t, patience, "lease of a", func() bool {
			leases, err := r.leases.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range leases {
				if l.ID.Name() == "a" {
					id = l.ID
				}
			}
			return id != ""
		})
		// As somebody's XADD that makes the stream, before the instance does.
		r.enterAs(id, "*", r.entryFor(r.event("e1", "u"), "u"))
		proxy.Heal()
		a.ready()
		c.sees("e1") // handed on to where u is
		r.settled(id)
	})
}

func TestCase_B04_PendingEntriesWithoutABody(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.RealRedis(t))
	reg := prometheus.NewRegistry()
	where, proxy := r.proxied()
	a := r.startAt(where, "a", func(c *socket.Config) { c.Metrics = reg }).ready()
	c := connect(t, a, "u", hello{"quiet": true})
	c.ackAll()
	c.mu.Lock()
	c.quiet = true
	c.mu.Unlock()
	// Two entries whose replies are lost: given to the instance in the same step that adds them.
	id := a.Instance()
	var read *redis.XStreamSliceCmd
	e1, e2 := r.entryFor(r.event("e1", "u"), "u"), r.entryFor(r.event("e2", "u"), "u")
	_, err := r.rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		inbox.QueueAppend(t.Context(), p, id, e1)
		inbox.QueueAppend(t.Context(), p, id, e2)
		read = p.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: inbox.Group, Consumer: string(id), Streams: []string{inbox.Key(id), ">"}, Block: -1})
		return nil
	})
	if err != nil || len(read.Val()) != 1 || len(read.Val()[0].Messages) != 2 {
		t.Fatal(read.Val(), err)
	}
	if err := r.rdb.XDel(t.Context(), inbox.Key(id), read.Val()[0].Messages[0].ID).Err(); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()        // own pending entries are read again
	c.sees("e1", "e2") // e1 from the log: its entry is gone, not the event
	c.ackAll()
	r.settled(id)
	if n := gather(t, reg, "lastmile_socket_inbox_entries_lost_total"); n != 1 {
		t.Errorf("%v entries lost, want 1", n)
	}
}

func gather(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestCase_B07_SettledEntriesAreRemoved(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		c := connect(t, a, "u")
		const n, rounds = 500, 2
		for round := range rounds {
			p := r.rdb.Pipeline()
			for i := range n {
				inbox.QueueAppend(t.Context(), p, a.Instance(), r.entryFor(r.event(fmt.Sprintf("e%d", round*n+i), "u"), "u"))
			}
			if _, err := p.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.sees(names("e", (round+1)*n)...)
			r.settled(a.Instance())
		}
		if st := a.Status().Inbox; st.Entries != 0 || st.Bytes != 0 {
			t.Errorf("tracker: %+v", st)
		}
		if c.doubles != 0 {
			t.Errorf("%d doubles", c.doubles)
		}
	})
}

func TestCase_B13_AnIdleServerStopsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		id := a.Instance()
		begin := time.Now()
		a.stop()
		if err := a.wait(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 1500*time.Millisecond {
			t.Errorf("took %v", took)
		}
		leases, err := r.leases.List(t.Context())
		if err != nil || len(leases) != 0 {
			t.Errorf("leases left: %v %v", leases, err)
		}
		if n := r.rdb.Exists(t.Context(), inbox.Key(id)).Val(); n != 0 {
			t.Error("the inbox is left")
		}
	})
}

func TestCase_B17_ManyConnectsOnASmallPool(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a", func(c *socket.Config) { c.PoolSize = 2 }).ready()
		id := a.Instance()
		first := connect(t, a, "u0")
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() { connect(t, a, fmt.Sprintf("u%d", i+1)) })
		}
		want := names("e", 50)
		for _, name := range want {
			r.publish(name, "u0")
		}
		first.sees(want...)
		wg.Wait()
		if a.Instance() != id || a.Ready() != nil {
			t.Errorf("instance %s became %s, ready: %v", id, a.Instance(), a.Ready())
		}
	})
}

func TestBadEntriesAndControls(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		c, kicked := connect(t, a, "u"), connect(t, a, "v")
		for _, fields := range [][]any{{"v", "1", "b", "nonsense"}, {"v", "9"}, {"x", "y"}} {
			if err := r.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: inbox.Key(a.Instance()), Values: fields}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		r.enter(a.Instance(), inbox.Entry{Control: &inbox.Control{Kick: "v", Before: time.Now().Add(time.Second)}})
		r.enter(a.Instance(), inbox.Entry{Control: &inbox.Control{Kick: "u", Before: time.Now().Add(-time.Hour)}})
		r.publish("e1", "u")
		c.sees("e1")
		kicked.closedWith(protocol.CloseKicked)
		r.settled(a.Instance())
		if n := r.rdb.XLen(t.Context(), inbox.Dead).Val(); n != 3 {
			t.Errorf("%d dead letters", n)
		}
	})
}

func TestTrace_T20_HalfOpenClientsHoldTheBound(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a", func(c *socket.Config) {
			c.InboxEntries, c.InboxGrace, c.LoopStall = 20, 100*time.Millisecond, 2500*time.Millisecond
		}).ready()
		id := a.Instance()
		good := connect(t, a, "good")
		var stuck []*client
		for i := range 12 {
			c := connect(t, a, fmt.Sprintf("s%d", i))
			c.mu.Lock()
			c.quiet = true
			c.mu.Unlock()
			stuck = append(stuck, c)
		}
		for i := range 5 * len(stuck) {
			r.publish("x", protocol.UserID(fmt.Sprintf("s%d", i%len(stuck))))
		}
		r.publish("e1", "good")
		good.sees("e1")
		closed := 0
		for _, c := range stuck {
			if !c.open() {
				c.closedWith(protocol.CloseAckTimeout)
				closed++
			}
		}
		if closed == 0 || !good.open() || a.Instance() != id {
			t.Errorf("%d closed, good open: %v, instance %s then %s", closed, good.open(), id, a.Instance())
		}
	})
}

func TestTrace_T59_WhatWaitsTooLongIsNotified(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a", func(c *socket.Config) { c.NotifyAfter = 500 * time.Millisecond }).ready()
		c := connect(t, a, "u", hello{"quiet": true}) // a tab whose reload never succeeds
		env := r.publish("e1", "u")
		r.waitNotified("u", env)
		r.settled(a.Instance())
		if !c.open() {
			t.Error("closed")
		}
		c.sees("e1")
	})
}

func TestSlowConsumer(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.EmbeddedRedis(t))
	a := r.start("a", func(c *socket.Config) { c.QueueEvents, c.WriteTimeout = 10, 4*time.Second }).ready()
	proxy := testkit.NewProxy(t, a.http.Listener.Addr().String())
	c := dial(t, "ws://"+proxy.Addr()+"/v1/ws", hello{"token": token("u"), "acks": true})
	c.welcome(1)
	r.publish("e0", "u")
	c.sees("e0")
	r.settled(a.Instance())
	other := connect(t, a, "v")
	proxy.BlackHole()
	big := make([]byte, 100<<10)
	for i := range big {
		big[i] = 'x'
	}
	sent := 0
	testkit.Eventually(t, patience, "closed as too slow", func() bool {
		e := &protocol.Event{To: []protocol.UserID{"u"}, Type: "test", Data: fmt.Appendf(nil, `{"name":"big%d","x":%q}`, sent, big)}
		e.Prepare()
		env := r.store.put(e)
		sent++
		r.route(env, "u")
		return a.Status().Sessions == 1
	})
	r.publish("e1", "v")
	other.sees("e1")
	c.drop()
	proxy.Heal()
	next := c.resumed(a, "u")
	testkit.Eventually(t, 3*patience, "all missed", func() bool { // some MiB, on a machine that may be busy
		if !next.open() {
			t.Fatalf("closed with %d after %d of %d events", next.code, len(next.shown()), sent)
		}
		return len(next.shown()) == sent
	})
	r.settled(a.Instance())
	if next.doubles != 0 || next.welcome(1).Recovered != true {
		t.Errorf("%d doubles", next.doubles)
	}
}

func TestAckTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.EmbeddedRedis(t))
	a := r.start("a", func(c *socket.Config) { c.AckTimeout, c.ReloadTimeout = 300*time.Millisecond, 600*time.Millisecond }).ready()
	never := connect(t, a, "u", hello{"quiet": true})
	stops := connect(t, a, "v")
	stops.mu.Lock()
	stops.quiet = true
	stops.mu.Unlock()
	env := r.publish("e1", "v")
	stops.closedWith(protocol.CloseAckTimeout)
	never.closedWith(protocol.CloseAckTimeout)
	r.waitNotified("v", env)
	r.settled(a.Instance())
}

func TestInboxGoneWhileSettling(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		id := a.Instance()
		c := connect(t, a, "u")
		if err := r.rdb.Del(t.Context(), inbox.Key(id)).Err(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, patience, "a new instance", func() bool { return a.Instance() != id && a.Ready() == nil })
		c.welcome(2)
		if _, err := r.inbox.Backlog(t.Context(), id); !errors.Is(err, inbox.ErrGone) {
			t.Errorf("the old inbox came back to life: %v", err)
		}
		r.publish("e1", "u")
		c.sees("e1")
		r.settled(a.Instance())
	})
}

func TestTrace_T28_APauseIsProgress(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.EmbeddedRedis(t))
	a := r.start("a", func(c *socket.Config) {
		c.InboxEntries, c.InboxGrace, c.LoopStall = 3, time.Minute, 2100*time.Millisecond
	}).ready()
	c := connect(t, a, "u", hello{"quiet": true})
	for i := range 10 {
		r.publish(fmt.Sprintf("e%d", i), "u")
	}
	testkit.Eventually(t, patience, "at the bound", func() bool { return a.Status().Inbox.Entries >= 3 })
	begin := time.Now()
	testkit.Eventually(t, patience, "longer than a stall", func() bool {
		if late := time.Since(a.Status().LastBeat); late > time.Second {
			t.Fatalf("no beat for %v", late)
		}
		return time.Since(begin) > 3500*time.Millisecond
	})
	c.ackAll()
	c.sees(names("e", 10)...)
	r.settled(a.Instance())
}

func TestTrace_T26_GraceCountsFromTheHandOn(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		connect(t, a, "u").drop()
		testkit.Eventually(t, patience, "left", func() bool { return a.Status().Sessions == 0 })
		env := r.event("e1", "u")
		e := r.entryFor(env, "u")
		e.Routed = time.Now().Add(-35 * time.Second)
		before := time.Now()
		r.enter(a.Instance(), e)
		r.waitNotified("u", env)
		msgs, err := r.rdb.XRange(t.Context(), inbox.Notifications, "-", "+").Result()
		if err != nil || len(msgs) != 1 {
			t.Fatal(msgs, err)
		}
		var at int64
		if _, err := fmt.Sscan(msgs[0].Values["at"].(string), &at); err != nil || at < before.UnixMilli() {
			t.Errorf("at %v, handed on at %v (%v)", at, before.UnixMilli(), err)
		}
	})
}
