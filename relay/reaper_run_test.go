package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
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
		pool := m.redis.Server().Pool(2, nil)
		defer pool.Close()
		r := m.reaper("r")
		looks := background(t, func(ctx context.Context) error {
			for ctx.Err() == nil {
				if leases, err := m.leases.List(ctx); err == nil {
					r.Saw(leases)
				}
				passed(t, 20*time.Millisecond)
			}
			return nil
		})
		defer looks()
		runs := background(t, func(ctx context.Context) error { r.Run(ctx); return nil })
		defer runs()
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
