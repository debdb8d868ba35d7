package inbox_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
)

func TestCase_B04_PendingWithoutABody(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		lost := b.append(t, id, inbox.Entry{Batch: batch(envelope(t), pair("u", 1))})
		kept := b.append(t, id, inbox.Entry{Batch: batch(envelope(t), pair("u", 2))})
		b.read(t, id)
		must(t, b.rdb.XDel(t.Context(), inbox.Key(id), lost).Err())

		raws, err := b.streams.Pending(t.Context(), b.rdb, id, "", 10)
		must(t, err)
		if b.real {
			// The embedded server hides the one without a body.
			if len(raws) != 2 || raws[0].ID != lost || raws[0].Fields != nil {
				t.Fatalf("got %v", raws)
			}
			_, err := inbox.Decode(raws[0])
			is(t, err, inbox.ErrBadEntry)
		}
		last := raws[len(raws)-1]
		if last.ID != kept || last.Fields == nil || last.Deliveries != 2 {
			t.Errorf("got %+v", last)
		}
		must(t, b.streams.Settle(t.Context(), id, lost, kept))
		back, err := b.streams.Backlog(t.Context(), id)
		if err != nil || back != (inbox.Backlog{}) {
			t.Errorf("left: %+v, %v", back, err)
		}
	})
}

func TestCase_B13_CancelEndsABlockingRead(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		conn, sent := b.reader(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer inbox.CloseOnDone(ctx, conn)()
		done := make(chan error, 1)
		go func() {
			_, err := b.streams.Read(ctx, conn, id, 10, time.Minute)
			done <- err
		}()
		<-sent
		cancel()
		select {
		case err := <-done:
			is(t, err, context.Canceled)
		case <-time.After(10 * time.Second):
			t.Fatal("still reading")
		}
	})
}

func TestCase_B14_NoBlockIsForEver(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for _, block := range []time.Duration{0, -time.Second, 1, time.Microsecond, 30 * time.Millisecond} {
			raws, err := b.streams.Read(ctx, b.rdb, id, 10, block)
			if err != nil || raws != nil {
				t.Errorf("block %v: %v, %v", block, raws, err)
			}
		}
	})
}

func TestReadWakesUp(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		conn, sent := b.reader(t)
		got := make(chan []inbox.Raw, 1)
		go func() {
			raws, _ := b.streams.Read(t.Context(), conn, id, 10, 10*time.Second)
			got <- raws
		}()
		<-sent
		entry := b.append(t, id, inbox.Entry{Batch: batch(envelope(t), pair("u", 1))})
		if raws := <-got; len(raws) != 1 || raws[0].ID != entry || raws[0].Deliveries != 1 {
			t.Errorf("got %v", raws)
		}
	})
}

func TestTrace_T17_DeletedUnderABlockingRead(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		conn, sent := b.reader(t)
		done := make(chan error, 1)
		go func() {
			for {
				_, err := b.streams.Read(t.Context(), conn, id, 10, 200*time.Millisecond)
				if err != nil {
					done <- err
					return
				}
			}
		}()
		<-sent
		must(t, b.rdb.Del(t.Context(), inbox.Key(id)).Err())
		is(t, <-done, inbox.ErrGone)
	})
}

func TestTakeLostAndFetch(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		var want []string
		for i := range 5 {
			want = append(want, b.append(t, id, inbox.Entry{Batch: batch(envelope(t), pair("u", i+1))}))
		}
		b.read(t, id) // and say the reply was lost
		young, _, err := b.streams.TakeLost(t.Context(), id, time.Hour)
		if err != nil || len(young) != 0 {
			t.Errorf("taken too early: %v, %v", young, err)
		}
		lost, _, err := b.streams.TakeLost(t.Context(), id, 0)
		must(t, err)
		if len(lost) != len(want) {
			t.Fatalf("got %v, want %v", lost, want)
		}
		raws, err := b.streams.Fetch(t.Context(), id, append(lost, "1-1")...)
		must(t, err)
		for i, raw := range raws[:5] {
			if raw.ID != want[i] || raw.Fields == nil || raw.Deliveries < 1 {
				t.Errorf("entry %d: %+v", i, raw)
			}
		}
		if missing := raws[5]; missing.ID != "1-1" || missing.Fields != nil {
			t.Errorf("got %+v", missing)
		}
		if none, err := b.streams.Fetch(t.Context(), id); err != nil || none != nil {
			t.Errorf("got %v, %v", none, err)
		}
	})
}

func TestCase_B05_TakeLostOfDeletedEntries(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		gone := b.append(t, id, inbox.Entry{Batch: batch(envelope(t), pair("u", 1))})
		kept := b.append(t, id, inbox.Entry{Batch: batch(envelope(t), pair("u", 2))})
		b.read(t, id)
		must(t, b.rdb.XDel(t.Context(), inbox.Key(id), gone).Err())
		lost, dropped, err := b.streams.TakeLost(t.Context(), id, 0)
		must(t, err)
		// Redis 6.2 leaves it among the others, the embedded one says nothing of it.
		if b.real && !slices.Contains(append(dropped, lost...), gone) || !slices.Contains(lost, kept) {
			t.Errorf("lost %v, dropped %v", lost, dropped)
		}
	})
}

// More than one page of XAUTOCLAIM: the cursor has to be followed to its end.
func TestTakeLostFollowsTheCursor(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		p := b.rdb.Pipeline()
		for i := range 2500 {
			inbox.QueueAppend(t.Context(), p, id, inbox.Entry{Batch: batch(envelope(t), pair("u", i+1))})
		}
		_, err := p.Exec(t.Context())
		must(t, err)
		b.read(t, id)
		lost, _, err := b.streams.TakeLost(t.Context(), id, 0)
		if err != nil || len(lost) != 2500 {
			t.Errorf("got %d, %v", len(lost), err)
		}
	})
}

func TestPendingIsPaged(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id := b.instance(t, "a")
		var want []string
		for i := range 7 {
			want = append(want, b.append(t, id, inbox.Entry{Batch: batch(envelope(t), pair("u", i+1))}))
		}
		b.read(t, id)
		b.append(t, id, inbox.Entry{Batch: batch(envelope(t), pair("u", 8))}) // unread, so not pending
		var got []string
		for after := ""; ; {
			raws, err := b.streams.Pending(t.Context(), b.rdb, id, after, 3)
			must(t, err)
			if len(raws) == 0 {
				break
			}
			for _, r := range raws {
				got = append(got, r.ID)
			}
			after = got[len(got)-1]
		}
		if len(got) != len(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("place %d: got %s, want %s", i, got[i], want[i])
			}
		}
	})
}
