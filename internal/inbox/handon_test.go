package inbox_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

// handOn is one with notifications on.
func (b bundle) handOn(change ...func(*inbox.HandOnConfig)) *inbox.HandOn {
	cfg := inbox.HandOnConfig{NotifyEnabled: true}
	for _, c := range change {
		c(&cfg)
	}
	return inbox.NewHandOn(b.rdb, b.reg, b.leases, cfg)
}

// do hands on from a dead or alive instance and expects that it succeeds.
func (b bundle) do(t testing.TB, h *inbox.HandOn, from protocol.InstanceID, ws ...inbox.Waiting) inbox.Result {
	t.Helper()
	r, err := h.Do(t.Context(), from, inbox.InstanceDead, nil, ws)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantResult(t testing.TB, got, want inbox.Result) {
	t.Helper()
	if got != want {
		t.Errorf("result %+v, want %+v", got, want)
	}
}

func waiting(v *protocol.Envelope, p protocol.Pair) inbox.Waiting {
	return inbox.Waiting{Event: v, Pair: p, Routed: time.Now()}
}

func TestHandOnMovesToAllOthers(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		dead, x, y := b.instance(t, "dead"), b.instance(t, "x"), b.instance(t, "y")
		b.connect(t, "u", dead)
		b.connect(t, "u", x)
		b.connect(t, "u", x) // two devices on one server: one pair
		b.connect(t, "u", y)
		v := envelope(t)
		routed := time.UnixMilli(time.Now().Add(-10 * time.Second).UnixMilli())
		got := b.do(t, b.handOn(), dead, inbox.Waiting{Event: v, Pair: pair("u", 3), Attempt: 1, Routed: routed})
		wantResult(t, got, inbox.Result{Moved: 1})
		for _, to := range []protocol.InstanceID{x, y} {
			es := b.entries(t, to)
			if len(es) != 1 {
				t.Fatalf("%s: %d entries", to, len(es))
			}
			want := inbox.Entry{ID: es[0].ID, Batch: batch(v, pair("u", 3)), From: dead, Attempt: 2, Routed: routed}
			if diff := cmp.Diff(want, es[0]); diff != "" {
				t.Error(diff)
			}
		}
		if es := b.entries(t, dead); len(es) != 0 {
			t.Errorf("it came back: %v", es)
		}
		if ns := b.notifications(t); len(ns) != 0 {
			t.Errorf("notified as well: %v", ns)
		}
	})
}

func TestHandOnRemovesStaleFieldsFirst(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		here, there := b.instance(t, "here"), b.instance(t, "there")
		stale, alive, other := b.connect(t, "u", here), b.connect(t, "u", here), b.connect(t, "u", there)
		live := func(u protocol.UserID) []protocol.SessionID {
			if u != "u" {
				t.Errorf("asked for %s", u)
			}
			return []protocol.SessionID{alive.Session}
		}
		_, err := b.handOn().Do(t.Context(), here, inbox.Undelivered, live, []inbox.Waiting{waiting(envelope(t), pair("u", 1))})
		must(t, err)
		left := map[registry.Field]bool{}
		for _, f := range b.fields(t, "u") {
			left[f] = true
		}
		if len(left) != 2 || left[stale] || !left[alive] || !left[other] {
			t.Errorf("left: %v", left)
		}
	})
}

func TestHandOnNotifies(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		dead, x := b.instance(t, "dead"), b.instance(t, "x")
		b.connect(t, "online", x)
		v := envelope(t)
		now := time.Now()
		ws := []inbox.Waiting{
			waiting(v, pair("offline", 1)),
			{Event: v, Pair: pair("online", 2), Routed: now.Add(-61 * time.Second)},
			{Event: v, Pair: pair("online", 3), Routed: now, Attempt: 3},
			waiting(v, pair("online", 0)), // without a place in a log no session could ack it
			{Event: v, Pair: pair("online", 4), Routed: now.Add(-59 * time.Second), Attempt: 2},
			{Event: v, Pair: pair("online", 5)}, // routed now
		}
		wantResult(t, b.do(t, b.handOn(), dead, ws...), inbox.Result{Moved: 2, Notified: 4})

		ns := b.notifications(t)
		if len(ns) != 1 {
			t.Fatalf("one event makes %d entries", len(ns))
		}
		want := []protocol.Pair{ws[0].Pair, ws[1].Pair, ws[2].Pair, ws[3].Pair}
		if diff := cmp.Diff(want, ns[0].Item.Pairs); diff != "" {
			t.Error(diff)
		}
		if age := time.Since(ns[0].At); ns[0].Reason != inbox.InstanceDead || age < 0 || age > time.Minute {
			t.Errorf("reason %s, %v old", ns[0].Reason, age)
		}
		if es := b.entries(t, x); len(es) != 2 {
			t.Errorf("moved: %v", es)
		}
	})
}

func TestHandOnNotifyAfterBoundsMaxAge(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		here, x := b.instance(t, "here"), b.instance(t, "x")
		b.connect(t, "u", x)
		h := b.handOn(func(c *inbox.HandOnConfig) { c.MaxAge = time.Hour })
		old := time.Now().Add(-4*time.Minute - time.Second)
		young := time.Now().Add(-4*time.Minute + 10*time.Second)
		if !h.Due(old, time.Now()) || h.Due(young, time.Now()) {
			t.Error("due is not what lies over four minutes back")
		}
		v := envelope(t)
		got := b.do(t, h, here, inbox.Waiting{Event: v, Pair: pair("u", 1), Routed: old}, inbox.Waiting{Event: v, Pair: pair("u", 2), Routed: young})
		wantResult(t, got, inbox.Result{Moved: 1, Notified: 1})
	})
}

func TestHandOnDropsByRule(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		dead, x := b.instance(t, "dead"), b.instance(t, "x")
		b.connect(t, "online", x)
		ephemeral := envelope(t, func(e *protocol.Event) { e.Ephemeral = true })
		expired := envelope(t, func(e *protocol.Event) { e.ExpiresAt = time.Now().Add(-time.Second) })
		silent := envelope(t, func(e *protocol.Event) { e.SkipNotify = true })
		metrics := prometheus.NewRegistry()
		h := b.handOn(func(c *inbox.HandOnConfig) { c.Metrics = metrics })
		got := b.do(t, h, dead,
			waiting(ephemeral, pair("online", 0)), waiting(expired, pair("online", 1)), waiting(expired, pair("offline", 1)),
			waiting(silent, pair("offline", 2)), waiting(silent, pair("online", 2)))
		wantResult(t, got, inbox.Result{Moved: 1, Dropped: 4})
		if es := b.entries(t, x); len(es) != 1 || es[0].Batch.Items[0].Event.ID != silent.ID {
			t.Errorf("moved: %v", es)
		}
		if ns := b.notifications(t); len(ns) != 0 {
			t.Errorf("notified: %v", ns)
		}
		if diff := cmp.Diff(map[string]float64{
			"moved": 1, "dropped_ephemeral": 1, "dropped_expired": 2, "dropped_not_to_notify": 1,
		}, counted(t, metrics)); diff != "" {
			t.Error(diff)
		}
	})
}

func counted(t *testing.T, metrics *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := metrics.Gather()
	must(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	return got
}

func TestHandOnWithoutNotifier(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		dead := b.instance(t, "dead")
		h := b.handOn(func(c *inbox.HandOnConfig) { c.NotifyEnabled = false })
		wantResult(t, b.do(t, h, dead, waiting(envelope(t), pair("offline", 1))), inbox.Result{Dropped: 1})
		if ns := b.notifications(t); len(ns) != 0 {
			t.Errorf("notified: %v", ns)
		}
		wantResult(t, b.do(t, h, dead), inbox.Result{})
	})
}

func TestHandOnOfALotTravelsTogether(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		dead, x := b.instance(t, "dead"), b.instance(t, "x")
		const users, events = 40, 100
		for u := range users {
			b.connect(t, protocol.UserID(fmt.Sprint("u", u)), x)
		}
		routed := time.Now()
		var ws []inbox.Waiting
		for e := range events {
			v := envelope(t)
			for u := range users {
				ws = append(ws, inbox.Waiting{Event: v, Pair: pair(protocol.UserID(fmt.Sprint("u", u)), e+1), Routed: routed})
			}
		}
		big := envelope(t, func(e *protocol.Event) {
			e.Data = json.RawMessage(`{"x":"` + strings.Repeat("y", 200<<10) + `"}`)
		})
		ws = append(ws, inbox.Waiting{Event: big, Pair: pair("u0", events+1), Routed: routed})
		wantResult(t, b.do(t, b.handOn(), dead, ws...), inbox.Result{Moved: users*events + 1})

		es := b.entries(t, x)
		next := map[protocol.UserID]protocol.Seq{}
		for _, e := range es {
			if n := e.Batch.Events(); n > protocol.MaxBatchEvents {
				t.Errorf("an entry of %d events", n)
			}
			for _, item := range e.Batch.Items {
				for _, p := range item.Pairs {
					if next[p.User]++; p.Seq != next[p.User] {
						t.Fatalf("%s: seq %d at place %d", p.User, p.Seq, next[p.User])
					}
				}
			}
		}
		if len(es) > 10 || next["u0"] != events+1 {
			t.Errorf("%d entries, the last of u0 is %d", len(es), next["u0"])
		}
	})
}
