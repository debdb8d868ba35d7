package outboxtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// publishAt inserts an event with a time of its own.
func (b *Bundle) publishAt(at time.Time) protocol.EventID {
	b.Helper()
	e := Event(0)
	e.Time = at
	b.Must(b.Store.Publish(b.Ctx, e))
	return e.ID
}

func (b *Bundle) scan(from time.Time, partition, partitions int) []outbox.Change {
	b.Helper()
	var all []outbox.Change
	b.Must(b.Store.Scan(b.Ctx, from, partition, partitions, func(_ context.Context, changes []outbox.Change) error {
		all = append(all, changes...)
		return nil
	}))
	return all
}

var scanTests = []test{
	{"reads by time, from a time on", func(b *Bundle) {
		now := time.Now().Truncate(time.Millisecond)
		third := b.publishAt(now.Add(2 * time.Minute))
		first := b.publishAt(now)
		second := b.publishAt(now.Add(time.Minute))
		if got := IDs(b.scan(time.Time{}, 0, 1)); !slices.Equal(got, []protocol.EventID{first, second, third}) {
			b.Errorf("everything: got %v", got)
		}
		if got := IDs(b.scan(now.Add(time.Minute), 0, 1)); !slices.Equal(got, []protocol.EventID{second, third}) {
			b.Errorf("from a minute on: got %v", got)
		}
		if got := b.scan(now.Add(time.Hour), 0, 1); len(got) != 0 {
			b.Errorf("from an hour on: got %v", IDs(got))
		}
	}},
	{"reads any number, many with one time, each once", func(b *Bundle) {
		store := reopen(b, outbox.Config{BatchSize: 7})
		at := time.Now()
		var want []protocol.EventID
		for range 50 {
			want = append(want, b.publishAt(at))
		}
		slices.SortFunc(want, func(x, y protocol.EventID) int { return slices.Compare(x[:], y[:]) })
		var got []protocol.EventID
		b.Must(store.Scan(b.Ctx, time.Time{}, 0, 1, func(_ context.Context, changes []outbox.Change) error {
			if len(changes) > 7 {
				b.Errorf("%d in a batch of 7", len(changes))
			}
			got = append(got, IDs(changes)...)
			return nil
		}))
		if !slices.Equal(got, want) {
			b.Errorf("got %d of %d", len(got), len(want))
		}
	}},
	{"partitions divide it as they divide the stream", func(b *Bundle) {
		const n = 3
		want := make([]int, n)
		for i := range 30 {
			e := Event(i, protocol.UserID("user"+string(rune('a'+i))))
			e.Prepare()
			want[protocol.Partition(e.PartitionHash(), n)]++
			b.Must(b.insertVariant(e, i))
		}
		for p := range n {
			changes := b.scan(time.Time{}, p, n)
			if len(changes) != want[p] {
				b.Errorf("partition %d: %d, wanted %d", p, len(changes), want[p])
			}
		}
	}},
	{"malformed documents are in it, those without a time too", func(b *Bundle) {
		bad := MalformedDocuments()
		for _, m := range bad {
			_, err := b.Events.InsertOne(b.Ctx, m.Doc)
			b.Must(err)
		}
		faults := 0
		for _, c := range b.scan(time.Now().Add(-time.Minute), 0, 1) {
			if c.Fault != nil {
				faults++
			}
		}
		if faults != len(bad) {
			b.Errorf("%d faults, wanted %d", faults, len(bad))
		}
	}},
	{"ends with the error of the caller, and with the context", func(b *Bundle) {
		b.Publish(3)
		enough := errors.New("enough")
		calls := 0
		err := b.Store.Scan(b.Ctx, time.Time{}, 0, 1, func(context.Context, []outbox.Change) error {
			calls++
			return enough
		})
		b.wantError(err, enough)
		if calls != 1 {
			b.Errorf("called %d times", calls)
		}
		ctx, cancel := context.WithCancel(b.Ctx)
		cancel()
		err = b.Store.Scan(ctx, time.Time{}, 0, 1, func(context.Context, []outbox.Change) error { return nil })
		b.wantError(err, context.Canceled)
	}},
	{"T14: a transaction open during a scan is seen by scan or stream", func(b *Bundle) {
		before := b.Publish(2)
		st := b.Watch(outbox.WatchOptions{})
		token, at := st.Place()
		late := Event(9)
		var scanned []outbox.Change
		b.Must(b.transact(func(ctx context.Context) error {
			if err := outbox.Publish(ctx, b.Events, *late); err != nil {
				return err
			}
			scanned = b.scan(time.Time{}, 0, 1) // by another session, while the transaction is open
			return nil
		}))
		again := b.Watch(outbox.WatchOptions{After: token, At: at.Timestamp, Index: at.Index})
		streamed := b.Read(again, 1)
		if !slices.Equal(IDs(scanned), before) || streamed[0].Event.ID != late.ID {
			b.Errorf("scan: %v, stream: %v", IDs(scanned), IDs(streamed))
		}
	}},
	{"the caller may write while it scans", func(b *Bundle) {
		_, err := b.Events.InsertOne(b.Ctx, bson.D{{Key: "_id", Value: "x"}})
		b.Must(err)
		b.Must(b.Store.Scan(b.Ctx, time.Time{}, 0, 1, func(ctx context.Context, changes []outbox.Change) error {
			return b.Store.Bury(ctx, changes[0], changes[0].Fault.Error())
		}))
		if n := b.count(b.DB.Collection(outbox.DeadCollection), all); n != 1 {
			b.Errorf("%d documents in outbox_dead", n)
		}
	}},
	{"retention deletes what is older, and only that", func(b *Bundle) {
		now := time.Now()
		for i := range 620 { // more than one batch
			b.publishAt(now.Add(-time.Hour - time.Duration(i)*time.Second))
		}
		keep := b.publishAt(now)
		_, err := b.Events.InsertOne(b.Ctx, bson.D{{Key: "_id", Value: "no time"}})
		b.Must(err)
		n, err := b.Store.Retain(b.Ctx, now.Add(-time.Minute))
		b.Must(err)
		if n != 620 || b.count(b.Events, all) != 2 {
			b.Errorf("%d deleted, %d left", n, b.count(b.Events, all))
		}
		if _, err := b.Store.Get(b.Ctx, keep); err != nil {
			b.Error(err)
		}
	}},
}
