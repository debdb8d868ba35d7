package relay_test

import (
	"slices"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/relay"
)

const (
	ia = protocol.InstanceID("a-aaaaaaaaaaaa")
	ib = protocol.InstanceID("b-bbbbbbbbbbbb")
	ic = protocol.InstanceID("c-cccccccccccc")
)

func running(id protocol.InstanceID) heartbeat.Lease {
	return heartbeat.Lease{ID: id, Running: true, Score: 1}
}

func ended(id protocol.InstanceID, score int64) heartbeat.Lease {
	return heartbeat.Lease{ID: id, Score: score, Until: time.UnixMilli(score)}
}

// Looks at moments of a test, in seconds, by default two of them are a second apart.
func TestSightings(t *testing.T) {
	t.Parallel()
	type glance struct {
		at     float64
		leases []heartbeat.Lease
		due    []protocol.InstanceID
	}
	look := func(at float64, leases []heartbeat.Lease, due ...protocol.InstanceID) glance {
		return glance{at, leases, due}
	}
	list := func(ls ...heartbeat.Lease) []heartbeat.Lease { return ls }
	for name, glances := range map[string][]glance{
		"all run": {look(0, list(running(ia))), look(1, list(running(ia)))},
		"one of three ended": {
			look(0, list(ended(ia, 5), running(ib), running(ic))),
			look(0.5, list(ended(ia, 5), running(ib), running(ic))),
			look(1, list(ended(ia, 5), running(ib), running(ic)), ia),
			look(2, list(ended(ia, 5), running(ib), running(ic)), ia),
		},
		"it beat in between": {
			look(0, list(ended(ia, 5), running(ib))),
			look(1, list(ended(ia, 6), running(ib))),
			look(2, list(running(ia), running(ib))),
			look(3, list(ended(ia, 7), running(ib))),
			look(4, list(ended(ia, 7), running(ib)), ia),
		},
		"superseded": {look(0, list(ended(ia, 0), running(ib)), ia)},
		"most ended at once": {
			look(0, list(ended(ia, 5), ended(ib, 5), running(ic))),
			look(1, list(ended(ia, 5), ended(ib, 5), running(ic))),
			look(3, list(ended(ia, 5), ended(ib, 5), running(ic))),
			look(5, list(ended(ia, 5), ended(ib, 5), running(ic)), ia, ib),
		},
		"the last of many to beat again": {
			look(0, list(ended(ia, 5), ended(ib, 5), ended(ic, 5))),
			look(1, list(ended(ia, 5), running(ib), running(ic))),
			look(2, list(ended(ia, 5), running(ib), running(ic))),
			look(4, list(running(ia), running(ib), running(ic))),
		},
		"claimed ones are not many": {
			look(0, list(ended(ia, 5), ended(ic, 0), running(ib)), ic),
			look(1, list(ended(ia, 5), ended(ic, 0), running(ib)), ia, ic),
		},
		"we were paused": {
			look(0, list(running(ia), running(ib))),
			look(15, list(ended(ia, 5), running(ib))),
			look(16, list(ended(ia, 5), running(ib))),
			look(18, list(ended(ia, 5), running(ib))),
			look(20, list(ended(ia, 5), running(ib)), ia),
		},
		"we were paused between two looks": {
			look(0, list(ended(ia, 5), running(ib))),
			look(15, list(ended(ia, 5), running(ib))),
			look(16, list(ended(ia, 5), running(ib))),
		},
		"somebody dies after a pause": {
			look(0, list(running(ia), running(ib))),
			look(15, list(running(ia), running(ib))),
			look(16, list(ended(ia, 5), running(ib))),
			look(17, list(ended(ia, 5), running(ib)), ia),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := relay.NewSightings(time.Second, 5*time.Second)
			began := time.Now()
			for _, g := range glances {
				due := s.Look(began.Add(time.Duration(g.at*float64(time.Second))), g.leases...)
				if !slices.Equal(due, g.due) {
					t.Errorf("at %v: due %v, want %v", g.at, due, g.due)
				}
			}
		})
	}
}

// The machine slept, which the monotonic clock does not count: the wall clock does.
func TestSightings_Sleep(t *testing.T) {
	t.Parallel()
	s := relay.NewSightings(time.Second, 5*time.Second)
	now := time.Now().Round(0)
	s.Look(now, running(ia), running(ib))
	for _, at := range []time.Duration{0, time.Second, 2 * time.Second} {
		if due := s.Look(now.Add(time.Hour+at), ended(ia, 5), running(ib)); len(due) != 0 {
			t.Errorf("%v after the sleep: due %v", at, due)
		}
	}
}
