package inbox_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// T13's part here: the answer nil counts as not connected there, at once.
func TestTrace_T13_TheOtherInboxIsGone(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		dead, gone, x := b.instance(t, "dead"), b.instance(t, "gone"), b.instance(t, "x")
		b.connect(t, "both", gone)
		keeps := b.connect(t, "both", x)
		b.connect(t, "only", gone)
		if sealed, err := b.streams.Seal(t.Context(), gone); err != nil || !sealed {
			t.Fatal(err)
		}
		v := envelope(t)
		got := b.do(t, b.handOn(), dead, waiting(v, pair("both", 1)), waiting(v, pair("only", 1)))
		wantResult(t, got, inbox.Result{Moved: 1, Notified: 1})
		if es := b.entries(t, x); len(es) != 1 {
			t.Errorf("moved: %v", es)
		}
		ns := b.notifications(t)
		if len(ns) != 1 || len(ns[0].Item.Pairs) != 1 || ns[0].Item.Pairs[0].User != "only" {
			t.Errorf("notified: %v", ns)
		}
		if fs := b.fields(t, "both"); len(fs) != 1 || fs[0] != keeps {
			t.Errorf("both: %v", fs)
		}
		if fs := b.fields(t, "only"); len(fs) != 0 {
			t.Errorf("only: %v", fs)
		}
		if n, err := b.rdb.Exists(t.Context(), inbox.Key(gone)).Result(); err != nil || n != 0 {
			t.Errorf("the inbox is back: %v, %v", n, err)
		}
	})
}

// T46's part here: an instance whose lease has ended, unclaimed, is passed over,
// and keeps its field, since it may go on.
func TestTrace_T46_ALeaseThatEndedIsPassedOver(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		dead, paused := b.instance(t, "dead"), b.instance(t, "paused")
		field := b.connect(t, "u", paused)
		must(t, b.rdb.ZAdd(t.Context(), "socket:instances", redis.Z{Score: 1000, Member: string(paused)}).Err())
		wantResult(t, b.do(t, b.handOn(), dead, waiting(envelope(t), pair("u", 1))), inbox.Result{Notified: 1})
		if es := b.entries(t, paused); len(es) != 0 {
			t.Errorf("moved: %v", es)
		}
		if fs := b.fields(t, "u"); len(fs) != 1 || fs[0] != field {
			t.Errorf("fields: %v", fs)
		}
	})
}

func TestTrace_T19_NoPingPong(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		at, other := b.instance(t, "a"), b.instance(t, "b")
		h := b.handOn()
		v := envelope(t)
		w := waiting(v, pair("u", 1))
		moves := 0
		for ; moves < 10; moves++ {
			b.connect(t, "u", other) // each names the other, whatever was removed before
			if r := b.do(t, h, at, w); r.Moved == 0 {
				wantResult(t, r, inbox.Result{Notified: 1})
				break
			}
			es := b.entries(t, other)
			if len(es) != 1 {
				t.Fatalf("move %d: %v", moves, es)
			}
			w = inbox.Waiting{Event: v, Pair: pair("u", 1), Attempt: es[0].Attempt, Routed: es[0].Routed}
			at, other = other, at
		}
		if moves != 3 {
			t.Errorf("moved %d times", moves)
		}
		if ns := b.notifications(t); len(ns) != 1 {
			t.Errorf("notified: %v", ns)
		}
	})
}

func TestTrace_T11_MovedAgainAfterALoss(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		dead, x := b.instance(t, "dead"), b.instance(t, "x")
		b.connect(t, "u", x)
		v := envelope(t)
		w := waiting(v, pair("u", 1))
		b.do(t, b.handOn(), dead, w)
		first := b.entries(t, x)
		must(t, b.streams.Settle(t.Context(), x, first[0].ID)) // Redis lost it
		b.do(t, b.handOn(), dead, w)
		if again := b.entries(t, x); len(again) != 1 || again[0].Batch.Items[0].Event.ID != v.ID || again[0].Attempt != first[0].Attempt {
			t.Errorf("got %v", again)
		}
	})
}

// Whichever call breaks, before or after it reached Redis: Do says so, and done
// again it brings every pair to its place.
func TestHandOnAfterTroubleAnywhere(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		h := b.handOn()
		for _, done := range []bool{false, true} {
			for n := int32(1); ; n++ {
				dead, x, gone := b.instance(t, "dead"), b.instance(t, "x"), b.instance(t, "gone")
				on := protocol.UserID(fmt.Sprintf("on-%d-%v", n, done))
				off := protocol.UserID(fmt.Sprintf("off-%d-%v", n, done))
				b.connect(t, on, dead)
				b.connect(t, on, x)
				b.connect(t, off, gone)
				if _, err := b.streams.Seal(t.Context(), gone); err != nil {
					t.Fatal(err)
				}
				v := envelope(t)
				ws := []inbox.Waiting{waiting(v, pair(on, 1)), waiting(v, pair(off, 1))}

				b.faults.arm(n, done)
				_, err := h.Do(t.Context(), dead, inbox.InstanceDead, nil, ws)
				broke := b.faults.failing.Load() > 0
				b.faults.arm(0, false)
				if broke {
					is(t, err, errFault)
				}
				if !broke {
					must(t, err)
					if n < 6 {
						t.Fatalf("only %d calls could break", n-1)
					}
					break
				}
				wantResult(t, b.do(t, h, dead, ws...), inbox.Result{Moved: 1, Notified: 1})
				if es := b.entries(t, x); len(es) == 0 {
					t.Errorf("call %d: nothing was moved", n)
				}
				if fs := b.fields(t, on); len(fs) != 1 || fs[0].Instance != x {
					t.Errorf("call %d: fields %v", n, fs)
				}
				ns := b.notifications(t)
				if last := ns[len(ns)-1]; last.Item.Pairs[0].User != off {
					t.Errorf("call %d: notified %v", n, last)
				}
			}
		}
	})
}

func TestCase_B20_OneBadKeyBlamesNoOther(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		dead, x, y, bad := b.instance(t, "dead"), b.instance(t, "x"), b.instance(t, "y"), b.instance(t, "bad")
		b.connect(t, "ux", x)
		b.connect(t, "uy", y)
		b.connect(t, "ubad", bad)
		must(t, b.rdb.Set(t.Context(), inbox.Key(bad), "a string", 0).Err())
		must(t, b.rdb.Set(t.Context(), "user:{weird}:at", "a string", 0).Err())
		v := envelope(t)
		got := b.do(t, b.handOn(), dead, waiting(v, pair("ubad", 1)), waiting(v, pair("ux", 1)), waiting(v, pair("weird", 1)), waiting(v, pair("uy", 1)))
		wantResult(t, got, inbox.Result{Moved: 2, Notified: 2})
		for _, id := range []protocol.InstanceID{x, y} {
			if es := b.entries(t, id); len(es) != 1 || len(es[0].Batch.Items[0].Pairs) != 1 {
				t.Errorf("%s got %v", id, es)
			}
		}
		ns := b.notifications(t)
		if len(ns) != 1 || len(ns[0].Item.Pairs) != 2 {
			t.Errorf("notified: %v", ns)
		}
	})
}

func TestCase_B21_HandOnBehindAFarID(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		dead, far, full := b.instance(t, "dead"), b.instance(t, "far"), b.instance(t, "full")
		b.connect(t, "u", far)
		b.connect(t, "w", full)
		for id, entry := range map[protocol.InstanceID]string{
			far: "99999999999999-1", full: "18446744073709551615-18446744073709551615",
		} {
			must(t, b.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: inbox.Key(id), ID: entry, Values: []any{"x", "y"}}).Err())
		}
		v := envelope(t)
		got := b.do(t, b.handOn(), dead, waiting(v, pair("u", 1)))
		wantResult(t, got, inbox.Result{Moved: 1})
		if b.real {
			// Behind the greatest id there is none: that inbox can take nothing more.
			got = b.do(t, b.handOn(), dead, waiting(v, pair("w", 1)))
			wantResult(t, got, inbox.Result{Notified: 1})
		}
	})
}
