package socket_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
	"github.com/lastmile-gateway/lastmile/socket"
)

// claim takes the lease of an instance as a reaper does.
func (r *rig) claim(id protocol.InstanceID) {
	r.t.Helper()
	if err := r.leases.End(r.t.Context(), id); err != nil {
		r.t.Fatal(err)
	}
}

func (n *node) fenced(old protocol.InstanceID) {
	n.t.Helper()
	testkit.Eventually(n.t, patience, "a new instance", func() bool { return n.Instance() != old && n.Ready() == nil })
}

func TestFence(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		old := a.Instance()
		c, quiet := connect(t, a, "u"), connect(t, a, "v", hello{"quiet": true})
		quiet.ackAll()
		quiet.mu.Lock()
		quiet.quiet = true
		quiet.mu.Unlock()
		r.publish("e1", "u", "v")
		c.sees("e1")
		quiet.sees("e1")
		r.claim(old)
		a.fenced(old)
		if w := c.welcome(2); !w.Recovered || w.Instance != a.Instance() {
			t.Errorf("welcome: %+v", w)
		}
		quiet.welcome(2)
		quiet.ackAll()
		r.publish("e2", "u", "v")
		c.sees("e1", "e2")
		quiet.sees("e1", "e2")
		r.settled(a.Instance())
		for _, user := range []protocol.UserID{"u", "v"} {
			u, err := r.reg.Lookup(t.Context(), user)
			if err != nil || len(u.Locations) != 1 || u.Locations[0].Instance != a.Instance() {
				t.Errorf("%s: %+v %v", user, u.Locations, err)
			}
		}
		// What was left in the old inbox is a reaper's: nothing of it is acknowledged under the old id.
		if b, err := r.inbox.Backlog(t.Context(), old); err != nil || b.Pending != 1 {
			t.Errorf("old inbox: %+v %v", b, err)
		}
	})
}

func TestTrace_T41_TheOldTrackerGoesWithItsInbox(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		old := a.Instance()
		c := connect(t, a, "u", hello{"quiet": true})
		c.ackAll()
		c.mu.Lock()
		c.quiet = true
		c.mu.Unlock()
		// Later than any probe in either inbox.
		entry := fmt.Sprintf("%d-7", time.Now().Add(time.Minute).UnixMilli())
		r.enterAs(old, entry, r.entryFor(r.event("e1", "u"), "u"))
		c.sees("e1")
		r.claim(old)
		a.fenced(old)
		c.welcome(2)
		// An entry of the same id in the new inbox.
		r.enterAs(a.Instance(), entry, r.entryFor(r.event("e2", "u"), "u"))
		c.sees("e1", "e2")
		c.send(map[string]any{"type": "ack", "n": 1, "seq": 1}) // of the old life
		c.send(map[string]any{"type": "ping"})
		c.find("pong", func(f frame) bool { return f.Type == "pong" })
		if b, err := r.inbox.Backlog(t.Context(), a.Instance()); err != nil || b.Length == 0 {
			t.Errorf("acknowledged by an ack of the old life: %+v %v", b, err)
		}
		c.ackAll()
		r.settled(a.Instance())
	})
}

func TestTrace_T42_TheOldLeaseEndsLast(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		old := a.Instance()
		for i := range 20 {
			connect(t, a, fmt.Sprintf("u%d", i))
		}
		// Its inbox is lost, its lease is not.
		if err := r.rdb.Del(t.Context(), inbox.Key(old)).Err(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, patience, "the old lease has ended", func() bool {
			runs, err := r.leases.Running(t.Context(), old)
			return err == nil && !runs[old]
		})
		for i := range 20 {
			u, err := r.reg.Lookup(t.Context(), protocol.UserID(fmt.Sprintf("u%d", i)))
			if err != nil || len(u.Locations) != 1 || u.Locations[0].Instance != a.Instance() {
				t.Errorf("u%d is at %+v although the old lease has ended (%v)", i, u.Locations, err)
			}
		}
		leases, err := r.leases.List(t.Context())
		if err != nil || len(leases) != 2 {
			t.Errorf("want the new lease and the old one at 0 for a reaper: %+v %v", leases, err)
		}
	})
}

func TestCase_D12_TheInboxKeyBecomesAString(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		old := a.Instance()
		c := connect(t, a, "u")
		if err := r.rdb.Set(t.Context(), inbox.Key(old), "not a stream", 0).Err(); err != nil {
			t.Fatal(err)
		}
		a.fenced(old)
		c.welcome(2)
		r.publish("e1", "u")
		c.sees("e1")
		r.settled(a.Instance())
	})
}

func TestTrace_T29_ASecondStartSupersedesTheFirst(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		first := r.start("a").ready()
		second := r.start("a").ready()
		select {
		case err := <-first.done:
			first.done <- err
			if !errors.Is(err, socket.ErrSuperseded) || !errors.Is(err, heartbeat.ErrSuperseded) {
				t.Errorf("ended with %v", err)
			}
		case <-time.After(2 * patience):
			t.Fatal("the first goes on")
		}
		connect(t, second, "u")
		if first.Ready() == nil || second.Ready() != nil {
			t.Errorf("ready: %v, %v", first.Ready(), second.Ready())
		}
	})
}

func TestTrace_T09_ARegistrationThatRedisLost(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		where, proxy := r.proxied()
		a := r.startAt(where, "a").ready()
		c := connect(t, a, "u")
		if err := r.rdb.HDel(t.Context(), "user:{u}:at", registry.Field{Instance: a.Instance(), Session: c.welcome(1).Session}.String()).Err(); err != nil {
			t.Fatal(err)
		}
		if offline := r.route(r.event("e1", "u"), "u"); offline != 1 {
			t.Fatal("still registered")
		}
		proxy.Cut() // as its restart does: what is dialled anew refreshes
		c.sees("e1")
		r.publish("e2", "u")
		c.sees("e1", "e2")
		r.settled(a.Instance())
	})
}

func TestCase_C08_RedisTroubleClosesNoSocket(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		where, proxy := r.proxied()
		a := r.startAt(where, "a", func(c *socket.Config) { c.CutOff = 500 * time.Millisecond }).ready()
		var all []*client
		for i := range 50 {
			all = append(all, connect(t, a, fmt.Sprintf("u%d", i)))
		}
		proxy.Refuse()
		testkit.Eventually(t, patience, "not ready", func() bool { return a.Ready() != nil })
		proxy.Heal()
		testkit.Eventually(t, patience, "ready again", func() bool { return a.Ready() == nil })
		for i, c := range all {
			if !c.open() {
				t.Fatalf("client %d was closed", i)
			}
			r.publish("e", protocol.UserID(fmt.Sprintf("u%d", i)))
		}
		for _, c := range all {
			c.sees("e")
		}
		r.settled(a.Instance())
	})
}

func TestRepliesThatAreLost(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		where, proxy := r.proxied()
		a := r.startAt(where, "a", func(c *socket.Config) { c.TakeLostInterval = 200 * time.Millisecond }).ready()
		c := connect(t, a, "u")
		var want []string
		for i, command := range []string{"xreadgroup", "xack", "evalsha", "xreadgroup"} {
			name := fmt.Sprintf("e%d", i)
			want = append(want, name)
			lost := proxy.SwallowReplyTo(command)
			r.publish(name, "u")
			c.sees(want...)
			select {
			case <-lost:
			case <-time.After(patience):
				t.Fatalf("no reply to %s", command)
			}
			r.settled(a.Instance())
		}
		if c.doubles != 0 || !c.open() {
			t.Errorf("%d doubles, open: %v", c.doubles, c.open())
		}
	})
}
