package inbox_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

func TestEntryFields(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id, from := b.instance(t, "a"), protocol.NewInstanceID("b")
		v := envelope(t)
		routed := time.UnixMilli(1_700_000_000_123)
		moved := inbox.Entry{Batch: batch(v, pair("u", 1), pair("w", 2)), From: from, Attempt: 2, Routed: routed}
		b.append(t, id, moved)
		b.append(t, id, inbox.Entry{Batch: batch(v, pair("u", 1))})
		raws := b.read(t, id)

		body := string(moved.Batch.AppendTo(nil))
		want := map[string]string{"v": "1", "n": "1", "b": body, "from": string(from), "attempt": "2", "routed": "1700000000123"}
		if diff := cmp.Diff(want, raws[0].Fields); diff != "" {
			t.Error(diff)
		}
		if names := len(raws[1].Fields); names != 3 {
			t.Errorf("a fresh entry has fields %v", raws[1].Fields)
		}

		e, err := inbox.Decode(raws[0])
		must(t, err)
		moved.ID = raws[0].ID
		if diff := cmp.Diff(moved, e); diff != "" {
			t.Error(diff)
		}
		if !e.Redelivered() {
			t.Error("a moved entry is not redelivered")
		}
		fresh, err := inbox.Decode(raws[1])
		must(t, err)
		if age := time.Since(fresh.Routed); fresh.Redelivered() || fresh.Attempt != 0 || age < 0 || age > time.Minute {
			t.Errorf("got %+v, %v old", fresh, age)
		}
	})
}

func TestControl(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		want := inbox.Control{Kick: `ü"{}`, Before: time.UnixMilli(1_700_000_000_123)}
		b.append(t, id, inbox.Entry{Control: &want})
		raws := b.read(t, id)
		if len(raws[0].Fields) != 2 || raws[0].Fields["v"] != "1" {
			t.Errorf("fields %v", raws[0].Fields)
		}
		e, err := inbox.Decode(raws[0])
		if err != nil || e.Control == nil || *e.Control != want || e.Batch.Events() != 0 {
			t.Errorf("got %+v, %v", e, err)
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	good := map[string]string{"v": "1", "n": "1", "b": string(batch(envelope(t), pair("u", 1)).AppendTo(nil)), "attempt": "0", "routed": "5"}
	if _, err := inbox.Decode(inbox.Raw{ID: "1-1", Fields: good}); err != nil {
		t.Fatal(err)
	}
	for _, change := range []map[string]string{
		{"v": "2"}, {"v": ""}, {"b": ""}, {"b": good["b"][:9]}, {"b": "\xff" + good["b"]},
		{"from": "x"}, {"attempt": "-1"}, {"attempt": "x"}, {"routed": "yesterday"},
		{"c": "{"}, {"c": "{}"}, {"c": `{"kick":"\u0000","before":1}`}, {"c": "[]"},
	} {
		f := maps.Clone(good)
		maps.Copy(f, change)
		_, err := inbox.Decode(inbox.Raw{ID: "1-1", Fields: f})
		if is(t, err, inbox.ErrBadEntry); t.Failed() {
			t.Fatalf("%v passed", change)
		}
	}
	_, err := inbox.Decode(inbox.Raw{ID: "no id", Fields: map[string]string{"v": "1", "b": good["b"]}})
	is(t, err, inbox.ErrBadEntry)
	_, err = inbox.Decode(inbox.Raw{ID: "1-1"})
	is(t, err, inbox.ErrBadEntry)
}

func FuzzDecode(f *testing.F) {
	f.Add("1-1", "1", string(batch(envelope(f), pair("u", 1)).AppendTo(nil)), "a-abcdefghijkl", "1", "5", "")
	f.Add("x", "", "", "", "", "", `{"kick":"u","before":1}`)
	f.Fuzz(func(t *testing.T, id, v, b, from, attempt, routed, c string) {
		fields := map[string]string{"v": v, "b": b, "from": from, "attempt": attempt, "routed": routed}
		if c != "" {
			fields["c"] = c
		}
		e, err := inbox.Decode(inbox.Raw{ID: id, Fields: fields})
		if err != nil {
			is(t, err, inbox.ErrBadEntry)
			return
		}
		if e.Routed.After(time.Now()) || e.Attempt < 0 || (e.Control == nil) == (c != "") {
			t.Errorf("let through: %+v", e)
		}
	})
}

func TestDeadLetters(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		metrics := prometheus.NewRegistry()
		inbox.New(b.rdb, inbox.Config{Metrics: metrics}) // another user of the same registry
		s := inbox.New(b.rdb, inbox.Config{Metrics: metrics, MaxDead: 100})
		id := protocol.NewInstanceID("a")
		fields := map[string]string{"v": "9", "reason": "its own"}
		must(t, s.ToDead(t.Context(), inbox.Key(id), "bad entry", "5-1", 5, fields))
		must(t, s.ToDead(t.Context(), inbox.Notifications, "bad entry", "6-1", 1, nil))

		for stream, want := range map[string]map[string]any{
			inbox.Dead: {"stream": inbox.Key(id), "reason": "bad entry", "origin": "5-1", "deliveries": "5",
				"entry.v": "9", "entry.reason": "its own"},
			inbox.DeadNotification: {"stream": inbox.Notifications, "reason": "bad entry", "origin": "6-1", "deliveries": "1"},
		} {
			letters, err := b.rdb.XRange(t.Context(), stream, "-", "+").Result()
			if err != nil || len(letters) != 1 {
				t.Fatalf("%s: %v, %v", stream, letters, err)
			}
			delete(letters[0].Values, "at")
			if diff := cmp.Diff(want, letters[0].Values); diff != "" {
				t.Errorf("%s: %s", stream, diff)
			}
		}
		for range 1000 {
			must(t, s.ToDead(t.Context(), inbox.Key(id), "bad entry", "5-1", 5, fields))
		}
		if n, err := b.rdb.XLen(t.Context(), inbox.Dead).Result(); err != nil || n > 300 {
			t.Errorf("%d dead letters are kept, %v", n, err)
		}
		families, err := metrics.Gather()
		if err != nil || len(families) != 1 || !strings.HasPrefix(families[0].GetName(), "lastmile_") {
			t.Errorf("metrics: %v, %v", families, err)
		}
	})
}

func TestNotifications(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		oldest, err := b.streams.OldestNotification(t.Context(), b.rdb)
		if err != nil || !oldest.IsZero() {
			t.Errorf("of nothing: %v, %v", oldest, err)
		}
		v := envelope(t)
		var pairs []protocol.Pair
		for i := range 2345 {
			pairs = append(pairs, pair("u", i+1))
		}
		at := time.UnixMilli(time.Now().Add(-time.Hour).UnixMilli())
		p := b.rdb.Pipeline()
		cmds := inbox.QueueNotification(t.Context(), p, inbox.Notification{
			Item: protocol.Item{Event: v, Pairs: pairs}, Reason: inbox.Offline, At: at,
		})
		none := inbox.QueueNotification(t.Context(), p, inbox.Notification{Item: protocol.Item{Event: v}})
		_, err = p.Exec(t.Context())
		must(t, err)
		if len(cmds) != 3 || len(none) != 0 {
			t.Fatalf("%d and %d commands", len(cmds), len(none))
		}
		if oldest, err = b.streams.OldestNotification(t.Context(), b.rdb); err != nil || !oldest.Equal(at) {
			t.Errorf("oldest: %v, %v", oldest, err)
		}

		// No group yet: the first read makes it, from the beginning.
		if raws, err := b.streams.ReadNotifications(t.Context(), b.rdb, "n-1", 10, 0); err != nil || len(raws) != 0 {
			t.Fatalf("got %v, %v", raws, err)
		}
		must(t, b.streams.MakeNotifications(t.Context()))
		raws, err := b.streams.ReadNotifications(t.Context(), b.rdb, "n-1", 10, 0)
		must(t, err)
		var got []protocol.Pair
		for i, raw := range raws {
			if raw.ID != cmds[i].Val() {
				t.Errorf("entry %d: %s", i, raw.ID)
			}
			n, err := inbox.DecodeNotification(raw)
			must(t, err)
			if n.Reason != inbox.Offline || !n.At.Equal(at) || n.Item.Event.ID != v.ID || len(n.Item.Pairs) > 1000 {
				t.Errorf("got %v %v with %d pairs", n.Reason, n.At, len(n.Item.Pairs))
			}
			got = append(got, n.Item.Pairs...)
			must(t, b.streams.SettleNotifications(t.Context(), raw.ID))
		}
		if diff := cmp.Diff(pairs, got); diff != "" {
			t.Error(diff)
		}
		if n, err := b.rdb.XLen(t.Context(), inbox.Notifications).Result(); err != nil || n != 0 {
			t.Errorf("left: %d, %v", n, err)
		}
	})
}

func TestCase_B21_OldestNotificationBehindAFarID(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		at := time.UnixMilli(time.Now().UnixMilli())
		must(t, b.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: inbox.Notifications, ID: "99999999999999-1", Values: []any{"at", at.UnixMilli()}}).Err())
		oldest, err := b.streams.OldestNotification(t.Context(), b.rdb)
		if err != nil || !oldest.Equal(at) {
			t.Errorf("got %v, %v; want %v", oldest, err, at)
		}
	})
}

func TestDecodeNotificationRefuses(t *testing.T) {
	t.Parallel()
	one := batch(envelope(t), pair("u", 1))
	two := protocol.Batch{Items: []protocol.Item{one.Items[0], batch(envelope(t), pair("u", 2)).Items[0]}}
	for name, f := range map[string]map[string]string{
		"no body":    nil,
		"no version": {"b": string(one.AppendTo(nil)), "at": "1"},
		"no at":      {"v": "1", "b": string(one.AppendTo(nil))},
		"no batch":   {"v": "1", "at": "1"},
		"two events": {"v": "1", "at": "1", "b": string(two.AppendTo(nil))},
	} {
		_, err := inbox.DecodeNotification(inbox.Raw{ID: "1-1", Fields: f})
		if is(t, err, inbox.ErrBadEntry); t.Failed() {
			t.Fatal(name)
		}
	}
}
