package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/relay"
)

// An instance dies under two running relays; a user of it is at another one, another
// is away. One of them reaps it, once.
func TestReap_RunningRelays(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		m.withRelays()
		m.relay(quick("r1")).ready()
		m.relay(quick("r2")).ready()
		a, stop := m.beating("a", pace())
		b, _ := m.beating("b", pace())
		a.connect("on", "off")
		m.publish(event(1, "on", "off"))
		eventually(t, 10*time.Second, "in the inbox of A", func() bool { return len(m.held(a)) == 2 })
		b.connect("on")
		stop()
		m.awaitReaped(a)
		if got := m.held(b); len(got) != 1 || got[0].Pair.User != "on" {
			t.Errorf("moved %v", got)
		}
		checkNotified(t, m, "off", 1)
		if h := m.history(); len(h) != 1 || h[0].Moved != 1 || h[0].Notified != 1 || h[0].Ended.IsZero() {
			t.Errorf("history %+v", h)
		}
	})
}

// An inbox without a lease is found by the relay that takes partition 0, and emptied;
// one that comes later is found at the next time.
func TestAdopt_RunningRelay(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		ctx := context.Background()
		orphan := func(name string) *instance {
			i := m.instance(name)
			user := protocol.UserID(name)
			i.connect(user)
			m.route(i, event(1, user), user)
			if err := m.leases.Remove(ctx, i.id); err != nil {
				t.Fatal(err)
			}
			return i
		}
		alive := m.instance("alive")
		one := orphan("one")
		m.looking(m.reaper("r"))
		eventually(t, 10*time.Second, "the first is reaped", func() bool { return len(firsts(m.notified())["one"]) == 1 })
		two := orphan("two")
		m.awaitReaped(two)
		m.awaitReaped(one)
		checkNotified(t, m, "two", 1)
		if l := m.lease(alive.id); !l.Running {
			t.Errorf("lease of the one alive: %+v", l)
		}
	})
}

// looking lets a reaper work without its relay.
func (m *morgue) looking(r *relay.Reaper) {
	m.t.Helper()
	background(m.t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			if leases, err := m.leases.List(ctx); err == nil {
				r.Saw(leases)
			}
			passed(m.t, 20*time.Millisecond)
		}
		return nil
	})
	background(m.t, func(ctx context.Context) error { r.Run(ctx); return nil })
}

// One instance whose reap breaks, again and again, holds up no other, and is reaped
// when the trouble is over.
func TestReap_TriesAgain(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		ctx := context.Background()
		if err := m.rdb.Set(ctx, inbox.Notifications, "nonsense", 0).Err(); err != nil {
			t.Fatal(err)
		}
		alive, stuck, other := m.instance("alive"), m.instance("stuck"), m.instance("other")
		stuck.connect("u")
		other.connect("v")
		alive.connect("v")
		m.route(stuck, event(1, "u"), "u")
		m.route(other, event(2, "v"), "v")
		tries := atomic.Int32{}
		hook := &redisStep{before: func(_ []string, cmds []redis.Cmder) error {
			if isNotice(cmds) {
				tries.Add(1)
			}
			return nil
		}}
		m.die(stuck)
		if err := m.leases.End(ctx, other.id); err != nil {
			t.Fatal(err)
		}
		m.looking(m.reaper("r", hook))
		m.awaitReaped(other)
		eventually(t, 20*time.Second, "three tries", func() bool { return tries.Load() >= 3 })
		if len(m.held(stuck)) != 1 {
			t.Errorf("%v is left", m.held(stuck))
		}
		m.rdb.Del(ctx, inbox.Notifications)
		m.awaitReaped(stuck)
		checkNotified(t, m, "u", 1)
	})
}
