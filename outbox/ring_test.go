package outbox_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/lastmile-gateway/lastmile/outbox"
)

func at(t int64) outbox.Position {
	return outbox.Position{Timestamp: outbox.Timestamp{T: uint32(t)}, Index: 1}
}

func slot(tick, t int64) outbox.Slot {
	return outbox.Slot{Marker: outbox.Marker{Position: at(t), Tick: tick, Token: outbox.Token{byte(tick)}}}
}

func TestBack(t *testing.T) {
	t.Parallel()
	var ring []outbox.Slot
	for tick := int64(100); tick <= 227; tick++ {
		ring = append(ring, slot(tick, tick*10))
	}
	cp := &outbox.Checkpoint{Ring: ring, Hourly: []outbox.Slot{slot(20, 200), slot(60, 600), slot(99, 990)}}
	now := outbox.Marker{Position: at(2275), Tick: 227}
	for _, f := range []struct {
		name  string
		ticks int64
		want  int64
	}{
		{"no way back: the slot of the same tick", 0, 2270},
		{"four ticks", 4, 2230},
		{"the whole ring", 127, 1000},
		{"beyond the ring: the hourly one before", 140, 600},
		{"just an hourly one", 167, 600},
		{"beyond all: the oldest", 220, 200},
		{"far beyond all", 1 << 40, 200},
	} {
		got := cp.Back(now, f.ticks)
		if got.Position != at(f.want) || got.Tick != now.Tick {
			t.Errorf("%s: got %+v, wanted %d", f.name, got, f.want)
		}
	}
	if got := (&outbox.Checkpoint{}).Back(now, 5); got.Position != now.Position {
		t.Errorf("without slots: %+v", got)
	}
	gap := &outbox.Checkpoint{Ring: []outbox.Slot{slot(1, 10), slot(3, 30)}}
	if got := gap.Back(outbox.Marker{Position: at(35), Tick: 3}, 1); got.Position != at(10) {
		t.Errorf("the slot of that tick was never written: got %+v, wanted the one before", got)
	}
}

// However often a relay rewinds: the place n ticks back is never later than any place of the last n ticks, and the
// token answered belongs to its position.
func TestBack_IsBeforeAllThatWasDoneSince(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cp := &outbox.Checkpoint{}
		var history []outbox.Slot // all slots ever, by tick
		place := int64(1000)
		for tick := int64(1); tick <= rapid.Int64Range(1, 300).Draw(t, "ticks"); tick++ {
			if rapid.IntRange(0, 9).Draw(t, "rewind") == 0 {
				place = max(1, place-rapid.Int64Range(0, 200).Draw(t, "by"))
			} else {
				place += rapid.Int64Range(0, 20).Draw(t, "on")
			}
			s := slot(tick, place)
			history = append(history, s)
			cp.Ring = append(cp.Ring, s)
			if len(cp.Ring) > outbox.RingSlots {
				cp.Ring = cp.Ring[1:]
			}
			if tick%20 == 1 {
				cp.Hourly = append(cp.Hourly, s)
				if len(cp.Hourly) > outbox.HourlySlots {
					cp.Hourly = cp.Hourly[1:]
				}
			}
		}
		last := history[len(history)-1].Marker
		ticks := rapid.Int64Range(0, 200).Draw(t, "back")
		got := cp.Back(last, ticks)
		for _, s := range history {
			if s.Tick >= last.Tick-ticks && s.Position.Compare(got.Position) < 0 && reaches(cp, s.Tick) {
				t.Fatalf("%d ticks back from %+v is %+v, but tick %d was at %s", ticks, last, got, s.Tick, s.Position)
			}
		}
		if got.Tick != last.Tick {
			t.Fatalf("the tick went back: %+v", got)
		}
	})
}

// reaches says whether the ring still has a tick: of older ones an hourly slot stands for the hour.
func reaches(cp *outbox.Checkpoint, tick int64) bool { return tick >= cp.Ring[0].Tick }

func TestPosition_Order(t *testing.T) {
	t.Parallel()
	ordered := []outbox.Position{
		{}, {Index: 1}, {Timestamp: outbox.Timestamp{I: 1}}, {Timestamp: outbox.Timestamp{T: 1}},
		{Timestamp: outbox.Timestamp{T: 1}, Index: 2}, {Timestamp: outbox.Timestamp{T: 1, I: 1}, Index: 1}, {Timestamp: outbox.Timestamp{T: 2}},
	}
	for i, p := range ordered {
		for j, o := range ordered {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := p.Compare(o); got != want {
				t.Errorf("%s and %s: %d, wanted %d", p, o, got, want)
			}
		}
	}
	if !ordered[0].IsZero() || ordered[1].IsZero() {
		t.Error("only the zero position is none")
	}
}
