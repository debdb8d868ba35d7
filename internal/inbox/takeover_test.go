package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// takeAll takes over page by page, to the end of the cursor.
func (b bundle) takeAll(t testing.TB, id protocol.InstanceID, count int) (raws []inbox.Raw, lost, pages int) {
	t.Helper()
	for cursor, more := "", true; more; more = cursor != "" {
		taken, err := b.streams.TakeOver(t.Context(), id, cursor, count)
		if err != nil {
			t.Fatal(err)
		}
		raws, lost, cursor = append(raws, taken.Raws...), lost+taken.Lost, taken.Next
		pages++
	}
	return raws, lost, pages
}

func TestTakeOverIsPaged(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		dead := b.instance(t, "dead")
		var want []string
		for range 25 {
			want = append(want, b.append(t, dead, inbox.Entry{Batch: batch(envelope(t), pair("u", 1))}))
		}
		b.read(t, dead)
		unread := b.append(t, dead, inbox.Entry{Batch: batch(envelope(t), pair("u", 2))})

		raws, lost, pages := b.takeAll(t, dead, 10)
		var got []string
		for _, raw := range raws {
			got = append(got, raw.ID)
			if _, err := inbox.Decode(raw); err != nil {
				t.Error(err)
			}
		}
		if !slices.Equal(got, want) || lost != 0 || pages < 3 {
			t.Errorf("%d entries in %d pages, %d lost", len(got), pages, lost)
		}
		// The instance, should it wake up, is not given them again.
		own, err := b.streams.Pending(t.Context(), b.rdb, dead, "", 100)
		if err != nil || len(own) != 0 {
			t.Errorf("its own: %v, %v", own, err)
		}
		// What a reaper took that died is taken by the next one.
		if raws, _, _ = b.takeAll(t, dead, 100); len(raws) != 25 || raws[0].Deliveries == 0 {
			t.Errorf("%d entries", len(raws))
		}
		raws, err = b.streams.TakeUnread(t.Context(), dead, 100)
		if err != nil || len(raws) != 1 || raws[0].ID != unread || raws[0].Fields == nil {
			t.Errorf("unread: %v, %v", raws, err)
		}
		if raws, err = b.streams.TakeUnread(t.Context(), dead, 100); err != nil || len(raws) != 0 {
			t.Errorf("then: %v, %v", raws, err)
		}
	})
}

func TestCase_B05_ClaimOfDeletedEntries(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		dead := b.instance(t, "dead")
		var ids []string
		for range 10 {
			ids = append(ids, b.append(t, dead, inbox.Entry{Batch: batch(envelope(t), pair("u", 1))}))
		}
		b.read(t, dead)
		must(t, b.rdb.XDel(t.Context(), inbox.Key(dead), ids[1:]...).Err())
		raws, lost, _ := b.takeAll(t, dead, 3)
		for _, raw := range raws {
			if raw.Fields == nil {
				lost++
			}
		}
		if b.real && (lost != 9 || len(raws)-lost > 1) || raws[0].ID != ids[0] || raws[0].Fields == nil {
			t.Errorf("%d entries, %d lost", len(raws), lost)
		}
		for _, raw := range raws {
			must(t, b.streams.Settle(t.Context(), dead, raw.ID))
		}
		if sealed, err := b.streams.Seal(t.Context(), dead); err != nil || !sealed {
			t.Errorf("sealed: %v, %v", sealed, err)
		}
	})
}

// claims answers XAUTOCLAIM in place of the server.
type claims struct{ reply any }

func (claims) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c claims) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if do, ok := cmd.(*redis.Cmd); ok && cmd.Name() == "xautoclaim" {
			do.SetVal(c.reply)
			return nil
		}
		return next(ctx, cmd)
	}
}

func (claims) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestCase_B05_RepliesOfVersions(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		reply     any
		ids, lost int
		next      string
		bad       bool
	}{
		{reply: []any{"0-0", []any{}}},
		{reply: []any{"0-0", []any{"1-1", "2-1"}}, ids: 2},
		{reply: []any{"3-1", []any{"1-1", nil, nil}}, ids: 1, lost: 2, next: "3-1"},
		{reply: []any{"0-0", []any{"1-1"}, []any{"2-1", "3-1"}}, ids: 1, lost: 2},
		{reply: []any{"0-0", nil, nil}},
		{reply: []any{"5-0", []any{}, []any{"1-1"}}, lost: 1, next: "5-0"},
		{reply: []any{"0-0"}, bad: true},
		{reply: []any{}, bad: true},
		{reply: []any{int64(0), []any{}}, bad: true},
		{reply: []any{"0-0", "nonsense"}, bad: true},
		{reply: "nonsense", bad: true},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			b := newBundle(t, testkit.EmbeddedRedis(t))
			b.rdb.AddHook(claims{c.reply})
			taken, err := b.streams.TakeOver(t.Context(), b.instance(t, "dead"), "", 10)
			if (err != nil) != c.bad || len(taken.Raws) != c.ids || taken.Lost != c.lost || taken.Next != c.next {
				t.Errorf("%v: %+v, %v", c.reply, taken, err)
			}
			for _, raw := range taken.Raws {
				if raw.Fields != nil {
					t.Errorf("a body out of nowhere: %v", raw)
				}
			}
		})
	}
}

func TestRegroup(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		dead := b.instance(t, "dead")
		entry := b.append(t, dead, inbox.Entry{Batch: batch(envelope(t), pair("u", 1))})
		must(t, b.streams.Regroup(t.Context(), dead)) // it is there
		must(t, b.rdb.XGroupDestroy(t.Context(), inbox.Key(dead), inbox.Group).Err())
		_, err := b.streams.TakeOver(t.Context(), dead, "", 10)
		is(t, err, inbox.ErrGone)
		_, err = b.streams.TakeUnread(t.Context(), dead, 10)
		is(t, err, inbox.ErrGone)
		must(t, b.streams.Regroup(t.Context(), dead))
		if raws, err := b.streams.TakeUnread(t.Context(), dead, 10); err != nil || len(raws) != 1 || raws[0].ID != entry {
			t.Errorf("got %v, %v", raws, err)
		}

		must(t, b.rdb.Del(t.Context(), inbox.Key(dead)).Err())
		must(t, b.streams.Regroup(t.Context(), dead))
		if n := b.rdb.Exists(t.Context(), inbox.Key(dead)).Val(); n != 0 {
			t.Error("the inbox came back to life")
		}
		must(t, b.rdb.Set(t.Context(), inbox.Key(dead), "text", 0).Err())
		must(t, b.streams.Regroup(t.Context(), dead))
		_, err = b.streams.TakeOver(t.Context(), dead, "", 10)
		is(t, err, inbox.ErrGone)
	})
}

func TestInboxes(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		want := map[protocol.InstanceID]bool{}
		for i := range 30 {
			want[b.instance(t, fmt.Sprint("i", i))] = true
		}
		p := b.rdb.Pipeline()
		for i := range 3000 {
			p.Set(t.Context(), fmt.Sprint("user:{", i, "}:at"), "x", 0)
		}
		p.Set(t.Context(), inbox.Key("no id"), "x", 0)
		_, err := p.Exec(t.Context())
		must(t, err)
		found := map[protocol.InstanceID]bool{}
		for cursor, more := uint64(0), true; more; more = cursor != 0 {
			ids, next, err := inbox.Inboxes(t.Context(), b.rdb, cursor)
			must(t, err)
			for _, id := range ids {
				found[id] = true
			}
			cursor = next
		}
		if len(found) != len(want) {
			t.Errorf("found %d inboxes", len(found))
		}
		for id := range want {
			if !found[id] {
				t.Errorf("%s was not found", id)
			}
		}
	})
}
