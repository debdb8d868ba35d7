package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// D10: the relay is frozen for three leases, with three healthy instances. Nobody is
// declared dead, though somebody who is afterwards is.
func TestCase_D10_TheObserverWasPaused(t *testing.T) {
	t.Parallel()
	m := newMorgue(t, testkit.OwnRedis(t)).withRelays()
	for _, name := range []string{"a", "b", "c"} {
		i, _ := m.beating(name, pace())
		i.connect("u")
	}
	victim, stop := m.beating("victim", pace())
	child := m.child("r")
	m.awaitOwner("")
	child.Freeze(t)
	passed(t, 3*pace().Lease)
	child.Thaw(t)
	m.onlyDies(victim, stop)
}

// Redis is frozen for two leases: all end, and nobody has died.
func TestCase_D10_RedisWasPaused(t *testing.T) {
	t.Parallel()
	s := testkit.OwnRedis(t)
	m := newMorgue(t, s).withRelays()
	for _, name := range []string{"a", "b", "c"} {
		i, _ := m.beating(name, pace())
		i.connect("u")
	}
	victim, stop := m.beating("victim", pace())
	m.relay(quick("r")).ready()
	s.Freeze(t)
	passed(t, 2*pace().Lease)
	s.Thaw(t)
	m.onlyDies(victim, stop)
}

// Redis and the relay are frozen together, as when a machine sleeps.
func TestCase_D10_EverybodyWasPaused(t *testing.T) {
	t.Parallel()
	s := testkit.OwnRedis(t)
	m := newMorgue(t, s).withRelays()
	for _, name := range []string{"a", "b", "c"} {
		m.beating(name, pace())
	}
	victim, stop := m.beating("victim", pace())
	child := m.child("r")
	m.awaitOwner("")
	child.Freeze(t)
	s.Freeze(t)
	passed(t, 2*pace().Lease)
	child.Thaw(t)
	s.Thaw(t)
	m.onlyDies(victim, stop)
}

// onlyDies lets one more instance die, and says that its reap is the only one: whoever
// else was taken for dead had to be reaped before it.
func (m *morgue) onlyDies(victim *instance, stop func()) {
	m.t.Helper()
	eventually(m.t, 10*time.Second, "all beat again", func() bool {
		leases, err := m.leases.List(context.Background())
		if err != nil {
			return false
		}
		for _, l := range leases {
			if !l.Running {
				return false
			}
		}
		return len(leases) == 4
	})
	stop()
	eventually(m.t, 20*time.Second, "the one that died is reaped", func() bool { return len(m.history()) > 0 })
	h := m.history()
	if len(h) != 1 || h[0].Instance != victim.id {
		m.t.Errorf("reaped %+v", h)
	}
	if n := len(m.notified()); n != 0 {
		m.t.Errorf("%d notifications", n)
	}
	leases, err := m.leases.List(context.Background())
	if err != nil || len(leases) != 3 {
		m.t.Errorf("leases %+v, %v", leases, err)
	}
}

// passed waits until so much time has gone by for whoever is frozen.
func passed(t testing.TB, d time.Duration) {
	t.Helper()
	began := time.Now()
	eventually(t, d+10*time.Second, "time passes", func() bool { return time.Since(began) > d })
}
