package inbox_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// handOver appends n notifications; the answers are the entries' ids.
func (b bundle) handOver(t testing.TB, n int) []string {
	t.Helper()
	p := b.rdb.Pipeline()
	var cmds []*redis.StringCmd
	for i := range n {
		u := protocol.UserID(fmt.Sprintf("u%d", i))
		cmds = append(cmds, inbox.QueueNotification(t.Context(), p, inbox.Notification{
			Item: protocol.Item{Event: envelope(t), Pairs: []protocol.Pair{pair(u, 0)}}, Reason: inbox.Offline, At: time.Now(),
		})...)
	}
	_, err := p.Exec(t.Context())
	must(t, err)
	var ids []string
	for _, c := range cmds {
		ids = append(ids, c.Val())
	}
	return ids
}

func (b bundle) readAs(t testing.TB, consumer string, count int) []string {
	t.Helper()
	must(t, b.streams.MakeNotifications(t.Context()))
	raws, err := b.streams.ReadNotifications(t.Context(), b.rdb, consumer, count, 0)
	must(t, err)
	return idsOf(raws)
}

func idsOf(raws []inbox.Raw) []string {
	var ids []string
	for _, r := range raws {
		ids = append(ids, r.ID)
	}
	return ids
}

// holder is who holds an entry, and "" if nobody does.
func (b bundle) holder(t testing.TB, id string) string {
	t.Helper()
	p, err := b.rdb.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: inbox.Notifications, Group: inbox.NotificationGroup, Start: id, End: id, Count: 1}).Result()
	must(t, err)
	if len(p) == 0 {
		return ""
	}
	return p[0].Consumer
}

func TestClaimNotifications_takesWhatNobodyRenews(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		ids := b.handOver(t, 5)
		b.readAs(t, "dead", 10)
		young, err := b.streams.ClaimNotifications(t.Context(), b.rdb, "me", time.Hour, "", 10)
		if err != nil || len(young.Raws) != 0 || young.Next != "" {
			t.Fatalf("taken too early: %+v, %v", young, err)
		}
		var got []inbox.Raw
		for start, rounds := "", 0; rounds == 0 || start != ""; rounds++ {
			c, err := b.streams.ClaimNotifications(t.Context(), b.rdb, "me", 0, start, 2)
			must(t, err)
			if rounds > 10 || len(c.Raws) > 2 {
				t.Fatalf("round %d: %+v", rounds, c)
			}
			got = append(got, c.Raws...)
			start = c.Next
		}
		if !slices.Equal(idsOf(got), ids) || b.holder(t, ids[4]) != "me" {
			t.Errorf("got %v, want %v", idsOf(got), ids)
		}
		for _, raw := range got {
			if _, err := inbox.DecodeNotification(raw); err != nil {
				t.Error(err)
			}
		}
		// What lost connections left is there again, from where one says.
		own, err := b.streams.OwnNotifications(t.Context(), b.rdb, "me", ids[1], 2)
		if !b.real {
			own = own[:2] // the embedded server does not count
		}
		if err != nil || !slices.Equal(idsOf(own), ids[2:4]) || own[0].Fields["v"] == "" {
			t.Errorf("own: %v, %v", own, err)
		}
	})
}

// Nobody takes back by a renewal what another has claimed meanwhile.
func TestRenewNotifications_takesNothingBack(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		ids := b.handOver(t, 4)
		b.readAs(t, "me", 10)
		_, err := b.streams.ClaimNotifications(t.Context(), b.rdb, "other", 0, ids[1], 1)
		must(t, err)
		must(t, b.streams.SettleNotifications(t.Context(), ids[2]))
		lost, err := b.streams.RenewNotifications(t.Context(), "me", ids...)
		if err != nil || !slices.Equal(lost, []string{ids[1], ids[2]}) {
			t.Errorf("lost %v, %v", lost, err)
		}
		if b.holder(t, ids[0]) != "me" || b.holder(t, ids[1]) != "other" || b.holder(t, ids[2]) != "" {
			t.Error("other holders")
		}
		none, err := b.streams.RenewNotifications(t.Context(), "me")
		if err != nil || none != nil {
			t.Errorf("got %v, %v", none, err)
		}
	})
}

// A renewal keeps an entry from being claimed; what is returned is claimed at once.
func TestRenewNotifications_keeps(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		const idle = 400 * time.Millisecond
		ids := b.handOver(t, 2)
		b.readAs(t, "me", 10)
		<-time.After(idle)
		lost, err := b.streams.RenewNotifications(t.Context(), "me", ids[0])
		if err != nil || lost != nil {
			t.Fatalf("lost %v, %v", lost, err)
		}
		c, err := b.streams.ClaimNotifications(t.Context(), b.rdb, "other", idle, "", 10)
		if err != nil || !slices.Equal(idsOf(c.Raws), ids[1:]) {
			t.Errorf("claimed %v, %v", idsOf(c.Raws), err)
		}
		must(t, b.streams.ReturnNotifications(t.Context(), "me"))
		c, err = b.streams.ClaimNotifications(t.Context(), b.rdb, "other", time.Hour, "", 10)
		if err != nil || !slices.Equal(idsOf(c.Raws), ids[:1]) {
			t.Errorf("claimed %v, %v", idsOf(c.Raws), err)
		}
	})
}

// More than one page.
func TestReturnNotifications_returnsAll(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		ids := b.handOver(t, 1234)
		b.readAs(t, "me", 2000)
		lost, err := b.streams.RenewNotifications(t.Context(), "me", ids...)
		if err != nil || lost != nil {
			t.Fatalf("lost %d, %v", len(lost), err)
		}
		must(t, b.streams.ReturnNotifications(t.Context(), "me"))
		c, err := b.streams.ClaimNotifications(t.Context(), b.rdb, "other", time.Hour, "", 2000)
		if err != nil || len(c.Raws) != len(ids) {
			t.Errorf("claimed %d, %v", len(c.Raws), err)
		}
	})
}

func TestNotifications_withoutAGroup(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		ctx := t.Context()
		for _, stream := range []bool{false, true} {
			var ids []string
			if stream {
				must(t, b.rdb.Del(ctx, inbox.Notifications).Err())
				ids = b.handOver(t, 1)
			}
			lost, err := b.streams.RenewNotifications(ctx, "me", "1-1")
			if err != nil || !slices.Equal(lost, []string{"1-1"}) {
				t.Errorf("renew: %v, %v", lost, err)
			}
			must(t, b.streams.ReturnNotifications(ctx, "me"))
			if n, err := b.streams.SweepNotifiers(ctx, "me", 0); err != nil || n != 0 {
				t.Errorf("sweep: %d, %v", n, err)
			}
			if l, err := b.streams.NotificationBacklog(ctx); err != nil || l.Length != int64(len(ids)) || l.Idle >= 0 {
				t.Errorf("backlog: %+v, %v", l, err)
			}
			if own, err := b.streams.OwnNotifications(ctx, b.rdb, "me", "", 10); err != nil || len(own) != 0 {
				t.Errorf("own: %v, %v", own, err)
			}
			must(t, b.rdb.XGroupDestroy(ctx, inbox.Notifications, inbox.NotificationGroup).Err())
			if c, err := b.streams.ClaimNotifications(ctx, b.rdb, "me", 0, "", 10); err != nil || len(c.Raws) != 0 {
				t.Errorf("claim: %v, %v", c, err)
			}
			if got := b.readAs(t, "me", 10); !slices.Equal(got, ids) { // the group begins at the first entry
				t.Errorf("read %v, want %v", got, ids)
			}
		}
	})
}

// A consumer that holds an entry is never deleted: that would lose the entry.
func TestSweepNotifiers_leavesWhoHolds(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		ids := b.handOver(t, 2)
		b.readAs(t, "idle", 1)
		b.readAs(t, "holds", 1)
		must(t, b.streams.SettleNotifications(t.Context(), ids[0]))
		if n, err := b.streams.SweepNotifiers(t.Context(), "", time.Hour); err != nil || n != 0 {
			t.Errorf("swept %d too early, %v", n, err)
		}
		for _, name := range []string{"holds", "idle"} {
			want := map[string]int{"holds": 0, "idle": 1}[name]
			if n, err := b.streams.SweepNotifiers(t.Context(), name, time.Hour); err != nil || n != want {
				t.Errorf("swept %d of %s, %v", n, name, err)
			}
		}
		if b.holder(t, ids[1]) != "holds" {
			t.Error("the entry is lost")
		}
		l, err := b.streams.NotificationBacklog(t.Context())
		if err != nil || l.Length != 1 || l.Idle < 0 || l.Idle > time.Minute || time.Since(l.Oldest) > time.Minute {
			t.Errorf("backlog %+v, %v", l, err)
		}
	})
}

func TestHasNotification(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		ids := b.handOver(t, 1)
		for id, want := range map[string]bool{ids[0]: true, "1-1": false, "nonsense": false, "-": false} {
			if there, err := b.streams.HasNotification(t.Context(), id); err != nil || there != want {
				t.Errorf("%s: %t, %v", id, there, err)
			}
		}
	})
}

// Marks go from nothing to pending to an end, and only the entry that stands there
// goes on.
func TestMarks(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		ctx, id := t.Context(), protocol.NewEventID()
		const u, hour = protocol.UserID("{u%}"), time.Hour
		take := func(entry string, abandoned inbox.Mark) inbox.Mark {
			t.Helper()
			m, err := b.streams.TakeMark(ctx, id, u, entry, abandoned, hour)
			must(t, err)
			return m
		}
		finish := func(entry string, end inbox.MarkState) inbox.Mark {
			t.Helper()
			m, err := b.streams.FinishMark(ctx, id, u, entry, end, hour)
			must(t, err)
			return m
		}
		if m := finish("1-1", inbox.MarkSent); m.State != inbox.MarkNone {
			t.Errorf("finished from nothing: %v", m)
		}
		if m := take("1-1", inbox.Mark{}); m.State != inbox.MarkPending || m.Entry != "1-1" {
			t.Errorf("first: %v", m)
		}
		if m := take("1-1", inbox.Mark{}); m.Entry != "1-1" {
			t.Errorf("again: %v", m)
		}
		other := take("2-2", inbox.Mark{})
		if other.Entry != "1-1" || finish("2-2", inbox.MarkSent).Entry != "1-1" {
			t.Errorf("another's: %v", other)
		}
		if m := take("2-2", other); m.Entry != "2-2" {
			t.Errorf("abandoned: %v", m)
		}
		if m := take("3-3", other); m.Entry != "2-2" {
			t.Errorf("what was judged abandoned has gone on: %v", m)
		}
		if m := finish("2-2", inbox.MarkSent); m.State != inbox.MarkSent {
			t.Errorf("sent: %v", m)
		}
		if m := take("3-3", inbox.Mark{}); m.State != inbox.MarkSent {
			t.Errorf("after sent: %v", m)
		}
		key := inbox.NotifiedKey(id, u)
		if !strings.HasSuffix(key, ".%7Bu%25%7D}") || b.rdb.PTTL(ctx, key).Val() <= 0 {
			t.Errorf("key %s", key)
		}
		must(t, b.rdb.Set(ctx, key, "nonsense", hour).Err())
		bad, err := b.streams.LookMark(ctx, id, u)
		if err != nil || bad.State != inbox.MarkPending || take("4-4", bad).Entry != "4-4" {
			t.Errorf("nonsense: %v, %v", bad, err)
		}
		if m, err := b.streams.LookMark(ctx, protocol.NewEventID(), u); err != nil || m.State != inbox.MarkNone {
			t.Errorf("none: %v, %v", m, err)
		}
	})
}

func TestBuryNotification_isAnEntryAgain(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		note := inbox.Notification{
			Item:   protocol.Item{Event: envelope(t), Pairs: []protocol.Pair{pair("a", 3), pair("b", 0)}},
			Reason: inbox.Undelivered, At: time.UnixMilli(1_700_000_000_000),
		}
		must(t, b.streams.BuryNotification(t.Context(), note, "why", "5-5", 7))
		letters, err := b.rdb.XRange(t.Context(), inbox.DeadNotification, "-", "+").Result()
		must(t, err)
		if len(letters) != 1 || letters[0].Values["reason"] != "why" || letters[0].Values["origin"] != "5-5" {
			t.Fatalf("letters %v", letters)
		}
		raw := inbox.Raw{ID: "9-9", Fields: map[string]string{}}
		for k, v := range letters[0].Values {
			if name, ok := strings.CutPrefix(k, "entry."); ok {
				raw.Fields[name] = fmt.Sprint(v)
			}
		}
		got, err := inbox.DecodeNotification(raw)
		if err != nil || got.Reason != note.Reason || !got.At.Equal(note.At) || !slices.Equal(got.Item.Pairs, note.Item.Pairs) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// A renewal of many entries costs one look at each page of them: a server that searches through all that is
// pending for every entry would stand still meanwhile, and every lease with it.
func TestRenewNotifications_manyAtOnce(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		ids := b.handOver(t, 3000)
		b.readAs(t, "me", len(ids))
		shuffled := slices.Clone(ids)
		slices.Reverse(shuffled)
		begun := time.Now()
		lost, err := b.streams.RenewNotifications(t.Context(), "me", shuffled...)
		if err != nil || len(lost) > 0 {
			t.Fatalf("lost %d, %v", len(lost), err)
		}
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("took %s", took)
		}
	})
}
