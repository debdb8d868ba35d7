package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

var watchTests = []test{
	{"begins now, and answers in commit order", func(b *Bundle) {
		b.Publish(3)
		st := b.Watch(outbox.WatchOptions{})
		token, at := st.Place()
		if len(token) == 0 || at.IsZero() {
			b.Fatal("an open stream has no place")
		}
		ids := b.Publish(20)
		changes := b.Read(st, 20)
		if !slices.Equal(IDs(changes), ids) {
			b.Error("not what was published, in its order")
		}
		for _, c := range changes {
			if c.Position.Compare(at) <= 0 {
				b.Fatalf("position %s does not follow %s", c.Position, at)
			}
			at = c.Position
		}
		if token, place := st.Place(); len(token) == 0 || place.Compare(at) < 0 {
			b.Errorf("place %s is before the last change %s", place, at)
		}
	}},
	{"goes on at every place", func(b *Bundle) {
		st := b.Watch(outbox.WatchOptions{})
		ids := b.Publish(4)
		changes := b.Read(st, 4)
		for i, c := range changes {
			again := b.Watch(outbox.WatchOptions{After: c.Token, At: c.Position.Timestamp, Index: c.Position.Index})
			if rest := b.Read(again, len(ids)-i-1); !slices.Equal(IDs(rest), ids[i+1:]) {
				b.Errorf("after %d: got %v", i, IDs(rest))
			}
			b.Quiet(again)
		}
	}},
	{"members of a transaction have an order, and a place between them", func(b *Bundle) {
		st := b.Watch(outbox.WatchOptions{})
		b.Must(b.Store.Publish(b.Ctx, Event(0), Event(1), Event(2)))
		changes := b.Read(st, 3)
		for i, c := range changes {
			if c.Position.Timestamp != changes[0].Position.Timestamp || c.Position.Index != uint32(i+1) {
				b.Errorf("member %d is at %s", i, c.Position)
			}
		}
		mid := changes[0]
		again := b.Watch(outbox.WatchOptions{After: mid.Token, At: mid.Position.Timestamp, Index: mid.Position.Index})
		for i, c := range b.Read(again, 2) {
			if c.Position != changes[i+1].Position || c.Event.ID != changes[i+1].Event.ID {
				b.Errorf("resumed: member %d is %s at %s", i+1, c.Event.ID, c.Position)
			}
		}
	}},
	{"without a token it begins at the cluster time, inclusive", func(b *Bundle) {
		st := b.Watch(outbox.WatchOptions{})
		ids := b.Publish(3)
		second := b.Read(st, 3)[1]
		again := b.Watch(outbox.WatchOptions{At: second.Position.Timestamp, Index: 9})
		changes := b.Read(again, 2)
		if !slices.Equal(IDs(changes), ids[1:]) || changes[0].Position != second.Position {
			b.Errorf("got %v, the first at %s", IDs(changes), changes[0].Position)
		}
	}},
	{"only inserts count, the place moves with the rest", func(b *Bundle) {
		st := b.Watch(outbox.WatchOptions{})
		id := b.Publish(1)[0]
		b.Read(st, 1)
		_, before := st.Place()
		_, err := b.Events.UpdateOne(b.Ctx, byID(id), bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: 1}}}})
		b.Must(err)
		b.Must(b.Store.Remove(b.Ctx, id))
		b.eventually("the place moves", func() bool {
			b.Quiet(st)
			_, after := st.Place()
			return after.Compare(before) > 0
		})
	}},
	{"A07: the token of a quiet outbox moves with writes elsewhere", func(b *Bundle) {
		st := b.Watch(outbox.WatchOptions{})
		b.Quiet(st)
		token, before := st.Place()
		for i := range 5 {
			_, err := b.DB.Collection("elsewhere").InsertOne(b.Ctx, bson.D{{Key: "_id", Value: i}})
			b.Must(err)
		}
		b.eventually("the place moves", func() bool {
			b.Quiet(st)
			now, after := st.Place()
			return after.Compare(before) > 0 && now.String() != token.String()
		})
		token, at := st.Place()
		again := b.Watch(outbox.WatchOptions{After: token, At: at.Timestamp, Index: at.Index})
		id := b.Publish(1)
		if got := IDs(b.Read(again, 1)); got[0] != id[0] {
			b.Errorf("behind an idle token: got %v", got)
		}
	}},
	{"A09: an idle stream delivers after any time", func(b *Bundle) {
		st := b.Watch(outbox.WatchOptions{})
		for range 5 {
			b.Quiet(st)
		}
		id := b.Publish(1)
		if got := IDs(b.read(st, 1, 2*time.Second)); got[0] != id[0] {
			b.Errorf("got %v", got)
		}
	}},
	{"A09: a context that ends takes Next along, not the stream", func(b *Bundle) {
		store := reopen(b, outbox.Config{AwaitTime: 10 * time.Second})
		st, err := store.Watch(b.Ctx, outbox.WatchOptions{})
		b.Must(err)
		defer st.Close(b.Ctx)
		for range 3 {
			ctx, cancel := context.WithTimeout(b.Ctx, 50*time.Millisecond)
			began := time.Now()
			var err error
			for err == nil { // the server's first answer comes without waiting
				_, err = st.Next(ctx)
			}
			cancel()
			b.wantError(err, context.DeadlineExceeded)
			if took := time.Since(began); took > 4*time.Second {
				b.Errorf("Next came back %s after its context", took)
			}
		}
		id := b.Publish(1)
		if got := IDs(b.Read(st, 1)); got[0] != id[0] {
			b.Errorf("got %v", got)
		}
	}},
	{"a batch has a bound", func(b *Bundle) {
		store := reopen(b, outbox.Config{AwaitTime: AwaitTime, BatchSize: 7})
		st, err := store.Watch(b.Ctx, outbox.WatchOptions{})
		b.Must(err)
		defer st.Close(b.Ctx)
		ids := b.Publish(20)
		var got []protocol.EventID
		for len(got) < len(ids) {
			changes, err := st.Next(b.Ctx)
			b.Must(err)
			if len(changes) > 7 {
				b.Fatalf("%d changes in a batch of 7", len(changes))
			}
			token, at := st.Place()
			if n := len(changes); n > 0 && (at.Compare(changes[n-1].Position) < 0 || len(token) == 0) {
				b.Fatalf("place %s in a batch that ends at %s", at, changes[n-1].Position)
			}
			got = append(got, IDs(changes)...)
		}
		if !slices.Equal(got, ids) {
			b.Error("not what was published, in its order")
		}
	}},
	{"a burst comes whole and in order", func(b *Bundle) {
		st := b.Watch(outbox.WatchOptions{})
		var ids []protocol.EventID
		for range 4 {
			events := make([]protocol.Event, 250)
			for i := range events {
				events[i] = *Event(i)
				ids = append(ids, events[i].ID)
			}
			b.Must(outbox.Publish(b.Ctx, b.Events, events...))
		}
		if !slices.Equal(IDs(b.Read(st, len(ids))), ids) {
			b.Error("not what was published, in its order")
		}
	}},
	{"partitions divide the events", func(b *Bundle) {
		const n = 4
		streams := make([]*outbox.Stream, n)
		for p := range streams {
			streams[p] = b.Watch(outbox.WatchOptions{Partition: p, Partitions: n})
		}
		want := make([][]protocol.EventID, n)
		for i := range 40 {
			e := Event(i, protocol.UserID(fmt.Sprintf("user%d", i)))
			e.Prepare()
			p := protocol.Partition(e.PartitionHash(), n)
			want[p] = append(want[p], e.ID)
			b.Must(b.insertVariant(e, i))
		}
		for p, st := range streams {
			if got := IDs(b.Read(st, len(want[p]))); !slices.Equal(got, want[p]) {
				b.Errorf("partition %d: got %v, wanted %v", p, got, want[p])
			}
			b.Quiet(st)
		}
	}},
}

// insertVariant inserts an event as different publishers would: with its hash, without, or as a double or long.
func (b *Bundle) insertVariant(e *protocol.Event, i int) error {
	if i%4 == 0 {
		return b.Store.Publish(b.Ctx, e)
	}
	doc := document(e)
	switch i % 4 {
	case 2:
		doc = append(doc, bson.E{Key: "hash", Value: float64(e.PartitionHash())})
	case 3:
		doc = append(doc, bson.E{Key: "hash", Value: int64(e.PartitionHash())})
	}
	_, err := b.Events.InsertOne(b.Ctx, doc)
	return err
}

// document is an event as a publisher in another language would insert it.
func document(e *protocol.Event) bson.D {
	to := make(bson.A, len(e.To))
	for i, u := range e.To {
		to[i] = string(u)
	}
	return bson.D{
		{Key: "_id", Value: e.ID.String()}, {Key: "to", Value: to}, {Key: "type", Value: e.Type},
		{Key: "data", Value: bson.D{{Key: "n", Value: 1}}}, {Key: "time", Value: time.Now()},
	}
}

func byID(id protocol.EventID) bson.D { return bson.D{{Key: "_id", Value: id.String()}} }

// reopen opens the same outbox with another configuration.
func reopen(b *Bundle, cfg outbox.Config) *outbox.Store {
	b.Helper()
	store, err := outbox.Open(b.Ctx, b.URL, cfg)
	b.Must(err)
	b.Cleanup(func() { closeAll(b.T, store.Close) })
	return store
}

// eventually asks until the answer is yes; what it asks waits for the server itself.
func (b *Bundle) eventually(what string, ok func() bool) {
	b.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			b.Fatalf("%s: not within 20 s", what)
		}
	}
}

var endTests = []test{
	{"A05: a dropped outbox is watched on", func(b *Bundle) {
		st := b.Watch(outbox.WatchOptions{})
		b.Publish(2)
		b.Read(st, 2)
		b.Must(b.Events.Drop(b.Ctx))
		b.Must(b.Store.Prepare(b.Ctx))
		ids := b.Publish(2)
		if got := IDs(b.read(st, 2, 5*time.Second)); !slices.Equal(got, ids) {
			b.Errorf("got %v", got)
		}
	}},
	{"a place before a drop, and one right behind it, lead on", func(b *Bundle) {
		st := b.Watch(outbox.WatchOptions{})
		b.Publish(1)
		before := b.Read(st, 1)[0]
		b.Must(b.Events.Drop(b.Ctx))
		behind, at := st.Place()
		b.eventually("the drop is read", func() bool {
			b.Quiet(st)
			token, place := st.Place()
			behind, at = token, place
			return place.Compare(before.Position) > 0 || token.String() != before.Token.String()
		})
		b.Must(b.Store.Prepare(b.Ctx))
		ids := b.Publish(1)
		for _, o := range []outbox.WatchOptions{
			{After: before.Token, At: before.Position.Timestamp, Index: before.Position.Index},
			{After: behind, At: at.Timestamp, Index: at.Index},
		} {
			if got := IDs(b.Read(b.Watch(o), 1)); !slices.Equal(got, ids) {
				b.Errorf("got %v", got)
			}
		}
	}},
	{"A05: a renamed outbox is watched under its name", func(b *Bundle) {
		st := b.Watch(outbox.WatchOptions{})
		b.Publish(1)
		b.Read(st, 1)
		name := b.DB.Name() + "." + b.Events.Name()
		b.Must(b.Client.Database("admin").RunCommand(b.Ctx, bson.D{
			{Key: "renameCollection", Value: name}, {Key: "to", Value: name + "_old"}}).Err())
		b.Must(b.Store.Prepare(b.Ctx))
		ids := b.Publish(2)
		if got := IDs(b.read(st, 2, 5*time.Second)); !slices.Equal(got, ids) {
			b.Errorf("got %v", got)
		}
	}},
	{"T63: a place beyond the server's time is history lost", func(b *Bundle) {
		b.Publish(1)
		now, err := b.Store.Now(b.Ctx)
		b.Must(err)
		later := outbox.Timestamp{T: now.T + 3600, I: 1}
		token, err := bson.Marshal(bson.D{{Key: "_data", Value: fmt.Sprintf("82%08X%08X2B0229296E04", later.T, later.I)}})
		b.Must(err)
		for _, o := range []outbox.WatchOptions{
			{After: token}, {After: token, At: now}, {At: later}, {After: token, At: later, Index: 3},
		} {
			began := time.Now()
			_, err := b.Store.Watch(b.Ctx, o)
			b.wantError(err, outbox.ErrHistoryLost)
			if errors.Is(err, outbox.ErrOtherCollection) || time.Since(began) > 5*time.Second {
				b.Errorf("after %s: %v", time.Since(began), err)
			}
		}
	}},
	{"a place of another collection is told apart", func(b *Bundle) {
		st := b.Watch(outbox.WatchOptions{})
		b.Publish(1)
		place := b.Read(st, 1)[0]
		uuid, err := b.Store.Collection(b.Ctx)
		b.Must(err)
		o := outbox.WatchOptions{After: place.Token, At: place.Position.Timestamp, Index: place.Position.Index, Collection: uuid}
		b.Quiet(b.Watch(o))
		b.Must(b.Events.Drop(b.Ctx))
		b.Must(b.Store.Prepare(b.Ctx))
		now, err := b.Store.Collection(b.Ctx)
		b.Must(err)
		if now == uuid || now == "" {
			b.Fatalf("dropped and made again, the collection is %q as before", now)
		}
		_, err = b.Store.Watch(b.Ctx, o)
		b.wantError(err, outbox.ErrOtherCollection)
		b.wantError(err, outbox.ErrHistoryLost)
	}},
	{"tokens that are none are history lost", func(b *Bundle) {
		for _, data := range []any{"zz", "00", 5} {
			token, err := bson.Marshal(bson.D{{Key: "_data", Value: data}})
			b.Must(err)
			_, err = b.Store.Watch(b.Ctx, outbox.WatchOptions{After: token})
			b.wantError(err, outbox.ErrHistoryLost)
		}
	}},
}
