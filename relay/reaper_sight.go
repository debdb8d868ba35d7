package relay

import (
	"time"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// sightings judges, look by look, which leases are to be reaped. That a lease has
// ended proves little: Redis may have been frozen, or the whole machine, and its
// instance beats again in a moment. So it must have been seen ended, with the same
// value, in two looks at least a beat apart, and a whole lease longer where it isn't
// the instance alone that has been away.
type sightings struct {
	// fixed after construction
	apart time.Duration // between the first look that showed it ended, and the claim
	lease time.Duration

	last time.Time // of the last look; zero: there was none
	of   map[protocol.InstanceID]sighting
}

// sighting is one ended lease.
type sighting struct {
	score int64     // the value that it ended with
	since time.Time // the first look that showed it
	not   time.Time // not to be reaped before
}

func newSightings(apart, lease time.Duration) *sightings {
	return &sightings{apart: apart, lease: lease, of: make(map[protocol.InstanceID]sighting)}
}

// look takes what a look at a moment showed, and answers what is to be reaped now.
// A lease at 0 is (it was claimed by a reaper that died, superseded, or given up):
// its instance can't come back.
func (s *sightings) look(at time.Time, leases []heartbeat.Lease) []heartbeat.Lease {
	patience := s.apart
	if s.paused(at) {
		clear(s.of)
		patience = s.lease
	}
	if mostEnded(leases) {
		patience = s.lease
	}
	s.last = at
	seen := make(map[protocol.InstanceID]sighting, len(s.of))
	var due []heartbeat.Lease
	for _, l := range leases {
		switch {
		case l.Running:
		case l.Score == 0:
			due = append(due, l)
		default:
			saw := s.sight(at, l, patience)
			seen[l.ID] = saw
			if !at.Before(saw.not) {
				due = append(due, l)
			}
		}
	}
	s.of = seen
	return due
}

// sight notes that a lease was seen ended. Patience once needed stays needed: of
// many that ended together the last one to beat again is no more dead than the first.
func (s *sightings) sight(at time.Time, l heartbeat.Lease, patience time.Duration) sighting {
	saw, again := s.of[l.ID]
	if !again || saw.score != l.Score {
		saw = sighting{score: l.Score, since: at}
	}
	if not := saw.since.Add(patience); not.After(saw.not) {
		saw.not = not
	}
	return saw
}

// paused says that we were away so long, by either clock, that leases may have ended
// by what held us up: the monotonic one does not count the sleep of a machine. A
// pause of half a lease ends none.
func (s *sightings) paused(at time.Time) bool {
	if s.last.IsZero() {
		return false
	}
	return max(at.Sub(s.last), at.Round(0).Sub(s.last.Round(0))) > s.lease/2
}

// mostEnded says that more instances have ended, unclaimed, than run.
func mostEnded(leases []heartbeat.Lease) bool {
	ended, running := 0, 0
	for _, l := range leases {
		switch {
		case l.Running:
			running++
		case l.Score != 0:
			ended++
		}
	}
	return ended > running
}
