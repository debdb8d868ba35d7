package heartbeat_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/protocol"
)

func TestCase_D04_RestartUnderTheSameName(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		first, value := register(t, b.leases, "a")
		// Names that begin alike are others.
		neighbours := []protocol.InstanceID{}
		for _, name := range []string{"a-b", "aa", "a-abcdefghijkl", "A"} {
			id, _ := register(t, b.leases, name)
			neighbours = append(neighbours, id)
		}
		second, _ := register(t, b.leases, "a")

		if first == second {
			t.Fatal("two lives have one id")
		}
		if s, there := b.score(t, first); !there || s != 0 {
			t.Errorf("the earlier life stands at %d (%v), not at 0 for the reaper", s, there)
		}
		if _, err := b.leases.Beat(t.Context(), first, value); !errors.Is(err, heartbeat.ErrLost) {
			t.Errorf("the earlier life beats on: %v", err)
		}
		running, err := b.leases.Running(t.Context(), append(neighbours, second)...)
		if err != nil {
			t.Fatal(err)
		}
		for id, runs := range running {
			if !runs {
				t.Errorf("%s was ended by a start of another name", id)
			}
		}
	})
}

// T48's part here: two reapers, the restart, and the beat of the old one.
func TestTrace_T48_RestartAndClaims(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		old, value := register(t, b.leases, "a")
		b.setScore(t, old, value-1_000_000)
		fresh, freshValue := register(t, b.leases, "a")
		if ok, err := b.leases.Claim(t.Context(), old, value-1_000_000); err != nil || ok {
			t.Errorf("claimed by what was seen before the restart: %v, %v", ok, err)
		}
		if ok, err := b.leases.Claim(t.Context(), old, 0); err != nil || !ok {
			t.Errorf("the superseded one can't be reaped: %v, %v", ok, err)
		}
		if ok, err := b.leases.Claim(t.Context(), fresh, freshValue); err != nil || ok {
			t.Errorf("the new one was claimed: %v, %v", ok, err)
		}
		if err := b.leases.Remove(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		if _, err := b.leases.Beat(t.Context(), fresh, freshValue); err != nil {
			t.Errorf("the new one lost its lease: %v", err)
		}
	})
}

func TestEndAndRemove(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		running, _ := register(t, b.leases, "a")
		missing := protocol.NewInstanceID("b")
		for _, id := range []protocol.InstanceID{running, missing} {
			if err := b.leases.End(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			if s, there := b.score(t, id); !there || s != 0 {
				t.Errorf("%s stands at %d (%v), not at 0 for the reaper", id, s, there)
			}
			if err := b.leases.Describe(t.Context(), id, heartbeat.Info{Name: "x"}); err != nil {
				t.Fatal(err)
			}
			if err := b.leases.Remove(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		if keys, err := b.rdb.Keys(t.Context(), "*").Result(); err != nil || len(keys) != 0 {
			t.Errorf("left behind: %v, %v", keys, err)
		}
	})
}

func TestRegisterRefusesABadName(t *testing.T) {
	t.Parallel()
	l := heartbeat.New(nil, key, heartbeat.Config{})
	if _, _, err := l.Register(t.Context(), "a b"); !errors.Is(err, protocol.ErrInstanceID) {
		t.Error(err)
	}
	if _, _, err := l.Rejoin(t.Context(), ""); !errors.Is(err, protocol.ErrInstanceID) {
		t.Error(err)
	}
}

func TestErrorsNameTheInstance(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id, value := register(t, b.leases, "a")
		b.faults.away.Store(true)
		calls := map[string]error{}
		_, calls["beat"] = b.leases.Beat(t.Context(), id, value)
		_, calls["claim"] = b.leases.Claim(t.Context(), id, value)
		calls["end"] = b.leases.End(t.Context(), id)
		calls["remove"] = b.leases.Remove(t.Context(), id)
		_, calls["list"] = b.leases.List(t.Context())
		_, calls["running"] = b.leases.Running(t.Context(), id)
		_, _, calls["register"] = b.leases.Register(t.Context(), "a")
		for name, err := range calls {
			if !errors.Is(err, errFault) {
				t.Errorf("%s hides the cause: %v", name, err)
			}
		}
	})
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	if err := (heartbeat.Config{}).Validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []heartbeat.Config{
		{Lease: 3 * time.Second},
		{Every: 2 * time.Second},
		{Every: time.Microsecond},
		{Lease: -1},
	} {
		if c.Validate() == nil {
			t.Errorf("%+v passed", c)
		}
	}
}
