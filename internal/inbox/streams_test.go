package inbox_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

func TestCase_B02_EntriesBeforeTheGroup(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := protocol.NewInstanceID("a")
		v := envelope(t)
		_, err := b.streams.Append(t.Context(), id, inbox.Entry{Batch: batch(v, pair("u", 1))})
		is(t, err, inbox.ErrGone)

		must(t, b.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: inbox.Key(id), Values: []any{
			"v", 1, "n", 1, "b", batch(v, pair("u", 1)).AppendTo(nil),
		}}).Err())
		must(t, b.streams.Make(t.Context(), id))
		must(t, b.streams.Make(t.Context(), id))
		es := b.entries(t, id)
		if len(es) != 1 || es[0].Batch.Items[0].Event.ID != v.ID {
			t.Errorf("got %v", es)
		}
	})
}

func TestCase_B07_SettledEntriesAreGone(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		v := envelope(t)
		for range 3 {
			p := b.rdb.Pipeline()
			for i := range 1000 {
				inbox.QueueAppend(t.Context(), p, id, inbox.Entry{Batch: batch(v, pair("u", i+1))})
			}
			_, err := p.Exec(t.Context())
			must(t, err)
			for {
				raws, err := b.streams.Read(t.Context(), b.rdb, id, 300, 0)
				must(t, err)
				if len(raws) == 0 {
					break
				}
				var ids []string
				for _, r := range raws {
					ids = append(ids, r.ID)
				}
				must(t, b.streams.Settle(t.Context(), id, ids...))
				must(t, b.streams.Settle(t.Context(), id, ids...)) // the reply of the first was lost
			}
			back, err := b.streams.Backlog(t.Context(), id)
			if err != nil || back != (inbox.Backlog{}) {
				t.Fatalf("left: %+v, %v", back, err)
			}
		}
		must(t, b.streams.Settle(t.Context(), id)) // of nothing
	})
}

func TestCase_B21_AnIDFarInTheFuture(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		const far = "99999999999999-5"
		must(t, b.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: inbox.Key(id), ID: far, Values: []any{"x", "y"}}).Err())
		v := envelope(t)
		b.append(t, id, inbox.Entry{Batch: batch(v, pair("u", 1))})

		raws := b.read(t, id)
		if len(raws) != 2 || raws[0].ID != far {
			t.Fatalf("got %v", raws)
		}
		_, err := inbox.Decode(raws[0])
		is(t, err, inbox.ErrBadEntry)
		e, err := inbox.Decode(raws[1])
		must(t, err)
		if e.Batch.Items[0].Event.ID != v.ID {
			t.Errorf("got %v", e)
		}
		if age := time.Since(e.Routed); age < 0 || age > time.Minute {
			t.Errorf("an age of %v would never grow", age)
		}
		must(t, b.streams.Settle(t.Context(), id, raws[0].ID, raws[1].ID))
	})
}

func TestTrace_T17_AReapedInboxStaysGone(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		gone, err := b.streams.Seal(t.Context(), id)
		if err != nil || !gone {
			t.Fatalf("an empty inbox was not sealed: %v, %v", gone, err)
		}
		_, err = b.streams.Read(t.Context(), b.rdb, id, 10, 20*time.Millisecond)
		is(t, err, inbox.ErrGone)
		_, err = b.streams.Pending(t.Context(), b.rdb, id, "", 10)
		is(t, err, inbox.ErrGone)
		_, _, err = b.streams.TakeLost(t.Context(), id, 0)
		is(t, err, inbox.ErrGone)
		_, err = b.streams.Backlog(t.Context(), id)
		is(t, err, inbox.ErrGone)
		_, err = b.streams.Append(t.Context(), id, inbox.Entry{Batch: batch(envelope(t), pair("u", 1))})
		is(t, err, inbox.ErrGone)
		must(t, b.streams.Settle(t.Context(), id, "1-1"))
		if n, err := b.rdb.Exists(t.Context(), inbox.Key(id)).Result(); err != nil || n != 0 {
			t.Errorf("an inbox came back to life under the old id: %v, %v", n, err)
		}
		if gone, err := b.streams.Seal(t.Context(), id); err != nil || !gone {
			t.Errorf("a missing inbox is not gone: %v, %v", gone, err)
		}
	})
}

func TestAKeyOfAnotherType(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := protocol.NewInstanceID("a")
		must(t, b.rdb.Set(t.Context(), inbox.Key(id), "x", 0).Err())
		is(t, b.streams.Make(t.Context(), id), inbox.ErrGone)
		_, err := b.streams.Read(t.Context(), b.rdb, id, 10, 0)
		is(t, err, inbox.ErrGone)
		_, err = b.streams.Append(t.Context(), id, inbox.Entry{Batch: batch(envelope(t), pair("u", 1))})
		is(t, err, inbox.ErrGone)
		is(t, b.streams.Settle(t.Context(), id, "1-1"), inbox.ErrGone)
		_, err = b.streams.Fetch(t.Context(), id, "1-1")
		is(t, err, inbox.ErrGone)
		_, err = b.streams.Backlog(t.Context(), id)
		is(t, err, inbox.ErrGone)
		if gone, err := b.streams.Seal(t.Context(), id); err != nil || !gone {
			t.Errorf("it stays in the reaper's way: %v, %v", gone, err)
		}
	})
}

func TestSealKeepsWhatIsLeft(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		seal := func(want bool, what string) {
			t.Helper()
			if gone, err := b.streams.Seal(t.Context(), id); err != nil || gone != want {
				t.Fatalf("%s: gone %v, %v", what, gone, err)
			}
		}
		entry := b.append(t, id, inbox.Entry{Batch: batch(envelope(t), pair("u", 1))})
		seal(false, "unread")
		b.read(t, id)
		seal(false, "pending")
		late := b.append(t, id, inbox.Entry{Batch: batch(envelope(t), pair("u", 2))})
		must(t, b.streams.Settle(t.Context(), id, entry))
		seal(false, "one more slipped in")
		b.read(t, id)
		must(t, b.streams.Settle(t.Context(), id, late))
		seal(true, "all settled")
	})
}

func TestSealWithoutTheGroup(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		entry := b.append(t, id, inbox.Entry{Batch: batch(envelope(t), pair("u", 1))})
		must(t, b.rdb.XGroupDestroy(t.Context(), inbox.Key(id), inbox.Group).Err())
		_, err := b.streams.Read(t.Context(), b.rdb, id, 10, 0)
		is(t, err, inbox.ErrGone)
		if gone, err := b.streams.Seal(t.Context(), id); err != nil || gone {
			t.Fatalf("an entry that nobody has read was deleted: %v, %v", gone, err)
		}
		must(t, b.streams.Make(t.Context(), id))
		if raws := b.read(t, id); len(raws) != 1 || raws[0].ID != entry {
			t.Errorf("got %v", raws)
		}
	})
}

func TestTrace_T18_AckedAndNotDeleted(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		half := b.append(t, id, inbox.Entry{Batch: batch(envelope(t), pair("u", 1))})
		b.read(t, id)
		must(t, b.rdb.XAck(t.Context(), inbox.Key(id), inbox.Group, half).Err())
		if gone, err := b.streams.Seal(t.Context(), id); err != nil || !gone {
			t.Errorf("a half-done entry stops the reaper: %v, %v", gone, err)
		}
	})
}

// Half of a settlement would be the leak of the pending list, or of the stream.
func TestTrace_T18_SettleIsOne(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		entry := b.append(t, id, inbox.Entry{Batch: batch(envelope(t), pair("u", 1))})
		b.read(t, id)
		b.faults.arm(1, true)
		is(t, b.streams.Settle(t.Context(), id, entry), errFault)
		back, err := b.streams.Backlog(t.Context(), id)
		if err != nil || back != (inbox.Backlog{}) {
			t.Errorf("half a settlement: %+v, %v", back, err)
		}
	})
}

func TestTrace_T41_EqualIDsInTwoStreams(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		old, fresh := b.instance(t, "a"), b.instance(t, "a")
		for _, id := range []protocol.InstanceID{old, fresh} {
			must(t, b.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: inbox.Key(id), ID: "7-7", Values: []any{"v", "1"}}).Err())
			b.read(t, id)
		}
		must(t, b.streams.Settle(t.Context(), old, "7-7"))
		back, err := b.streams.Backlog(t.Context(), fresh)
		if err != nil || back.Pending != 1 || back.Length != 1 {
			t.Errorf("the new inbox lost an entry to the old tracker: %+v, %v", back, err)
		}
	})
}

func TestBacklog(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		b.append(t, id, inbox.Entry{Batch: batch(envelope(t), pair("u", 1))})
		b.read(t, id)
		b.append(t, id, inbox.Entry{Batch: batch(envelope(t), pair("u", 2))})
		back, err := b.streams.Backlog(t.Context(), id)
		if err != nil || back.Length != 2 || back.Pending != 1 {
			t.Errorf("got %+v, %v", back, err)
		}
		if age := time.Since(back.Oldest); age < -time.Second || age > time.Minute {
			t.Errorf("the oldest is %v old", age)
		}
	})
}
