package outboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

var publishTests = []test{
	{"what is published is read back", func(b *Bundle) {
		hash := int32(7)
		e := &protocol.Event{
			To: []protocol.UserID{"alice", "bob", "alice", "ü{%}"}, Type: "chat.message", Source: "chat", Subject: "room:42",
			Data: json.RawMessage(`{"text":"<b>\"ü\"</b>","n":[1,2147483648,1.5,1e+300,0.1234567890123456789,true,null,{}],"$date":{"a.b":""}}`),
			Key:  "k", Hash: &hash, ExpiresAt: time.Now().Add(time.Hour), Ephemeral: true, SkipNotify: true, Traceparent: "00-1-2-01",
		}
		before := time.Now().Add(-time.Second)
		b.Must(b.Store.Publish(b.Ctx, e))
		got, err := b.Store.Get(b.Ctx, e.ID)
		b.Must(err)
		if diff := cmp.Diff(e, got); diff != "" {
			b.Errorf("read back otherwise (-published +read):\n%s", diff)
		}
		if len(e.To) != 3 || e.Time.Before(before) {
			b.Errorf("not prepared: %+v", e)
		}
	}},
	{"the same id again is the same event", func(b *Bundle) {
		first := Event(1)
		b.Must(b.Store.Publish(b.Ctx, first))
		again := Event(2)
		again.ID = first.ID
		b.Must(b.Store.Publish(b.Ctx, again))
		b.Must(outbox.Publish(b.Ctx, b.Events, *again, *Event(3)))
		b.Must(b.Store.Publish(b.Ctx, again, Event(4), again))
		got, err := b.Store.Get(b.Ctx, first.ID)
		b.Must(err)
		if string(got.Data) != `{"n":1}` || b.count(b.Events, all) != 3 {
			b.Errorf("data %s, %d documents", got.Data, b.count(b.Events, all))
		}
	}},
	{"in a transaction it exists when that commits", func(b *Bundle) {
		e, messages := Event(1), b.DB.Collection("messages")
		b.Must(b.DB.CreateCollection(b.Ctx, "messages"))
		st := b.Watch(outbox.WatchOptions{})
		refused := errors.New("refused")
		write := func(ctx context.Context) error {
			if _, err := messages.InsertOne(ctx, bson.D{{Key: "_id", Value: "m"}}); err != nil {
				return err
			}
			return outbox.Publish(ctx, b.Events, *e)
		}
		err := b.transact(func(ctx context.Context) error { return errors.Join(write(ctx), refused) })
		b.wantError(err, refused)
		if b.count(b.Events, all)+b.count(messages, all) != 0 {
			b.Error("an aborted transaction left something behind")
		}
		b.Must(b.transact(write))
		changes := b.Read(st, 1)
		if changes[0].Event.ID != e.ID || b.count(messages, all) != 1 {
			b.Errorf("got %s and %d messages", describe(changes[0]), b.count(messages, all))
		}
	}},
	{"a duplicate does not abort the transaction that it is in", func(b *Bundle) {
		e := Event(1)
		b.Must(b.DB.CreateCollection(b.Ctx, "messages"))
		b.Must(b.Store.Publish(b.Ctx, e))
		b.Must(b.transact(func(ctx context.Context) error {
			if err := outbox.Publish(ctx, b.Events, *e, *Event(2), *e); err != nil {
				return err
			}
			_, err := b.DB.Collection("messages").InsertOne(ctx, bson.D{{Key: "_id", Value: "m"}})
			return err
		}))
		if n := b.count(b.DB.Collection("messages"), all); n != 1 || b.count(b.Events, all) != 2 {
			b.Errorf("%d messages, %d events", n, b.count(b.Events, all))
		}
	}},
	{"F11: a duplicate that is committed behind the transaction's snapshot repeats it, once", func(b *Bundle) {
		e, messages := Event(1), b.DB.Collection("messages")
		b.Must(b.DB.CreateCollection(b.Ctx, "messages"))
		st := b.Watch(outbox.WatchOptions{})
		runs := 0
		b.Must(b.transact(func(ctx context.Context) error {
			runs++
			if _, err := messages.InsertOne(ctx, bson.D{{Key: "_id", Value: "m"}}); err != nil {
				return err
			}
			if n, err := b.Events.CountDocuments(ctx, all); err != nil || int(n) != runs-1 {
				return errors.Join(err, fmt.Errorf("run %d sees %d events", runs, n))
			}
			if err := b.Store.Publish(b.Ctx, e); err != nil { // by somebody else
				return err
			}
			return outbox.Publish(ctx, b.Events, *e, *Event(2))
		}))
		if runs != 2 || b.count(messages, all) != 1 {
			b.Errorf("%d runs, %d messages", runs, b.count(messages, all))
		}
		if changes := b.Read(st, 2); changes[0].Event.ID != e.ID {
			b.Errorf("first comes %s", describe(changes[0]))
		}
		b.Quiet(st)
	}},
	{"the first event ever may be a transaction's, which makes the collection", func(b *Bundle) {
		b.Must(b.Events.Drop(b.Ctx))
		st := b.Watch(outbox.WatchOptions{}) // before there is a collection
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			wg.Go(func() {
				errs[i] = b.transact(func(ctx context.Context) error { return outbox.Publish(ctx, b.Events, *Event(i)) })
			})
		}
		wg.Wait()
		b.Must(errors.Join(errs...))
		b.Read(st, len(errs))
		b.Must(b.Store.Prepare(b.Ctx))
		if n := len(b.scan(time.Time{}, 0, 1)); n != len(errs) {
			b.Errorf("%d events in the scan", n)
		}
	}},
	{"F11: resends at the same moment are one event", func(b *Bundle) {
		e := Event(1)
		st := b.Watch(outbox.WatchOptions{})
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() {
				mine := *e
				if i%2 == 0 {
					errs[i] = b.Store.Publish(b.Ctx, &mine)
					return
				}
				errs[i] = b.transact(func(ctx context.Context) error { return outbox.Publish(ctx, b.Events, mine) })
			})
		}
		wg.Wait()
		b.Must(errors.Join(errs...))
		b.Read(st, 1)
		b.Quiet(st)
	}},
	{"several are all or nothing", func(b *Bundle) {
		bad := Event(2)
		bad.To, bad.Type = nil, ""
		err := b.Store.Publish(b.Ctx, Event(1), bad)
		var invalid *protocol.ValidationError
		if !errors.As(err, &invalid) || len(invalid.Faults) != 2 || invalid.Faults[0].Pointer != "/1/to" {
			b.Errorf("got %v", err)
		}
		// A rule of the database that the second one breaks.
		_, err = b.Events.Indexes().CreateOne(b.Ctx, mongo.IndexModel{
			Keys: bson.D{{Key: "subject", Value: 1}}, Options: options.Index().SetUnique(true)})
		b.Must(err)
		one, two := Event(1), Event(2)
		one.Subject, two.Subject = "s", "s"
		if err := b.Store.Publish(b.Ctx, one, two); err == nil {
			b.Error("a broken unique index is no error")
		}
		if n := b.count(b.Events, all); n != 0 {
			b.Errorf("%d documents were stored", n)
		}
	}},
	{"reserved types are refused from applications", func(b *Bundle) {
		e := Event(1)
		e.Type = protocol.ProbeType
		var invalid *protocol.ValidationError
		if err := outbox.Publish(b.Ctx, b.Events, *e); !errors.As(err, &invalid) || invalid.Faults[0].Pointer != "/type" {
			b.Errorf("got %v", err)
		}
		b.Must(b.Store.Publish(b.Ctx, e)) // the relay's own probe
		b.Must(b.Store.Remove(b.Ctx, e.ID, protocol.NewEventID()))
		if _, err := b.Store.Get(b.Ctx, e.ID); !errors.Is(err, outbox.ErrNotFound) {
			b.Errorf("removed, but: %v", err)
		}
	}},
	{"what MongoDB can't hold is a clear refusal", func(b *Bundle) {
		e := Event(1)
		e.To = make([]protocol.UserID, protocol.MaxRecipients+1)
		for i := range e.To {
			e.To[i] = "u"
		}
		var invalid *protocol.ValidationError
		if err := b.Store.Publish(b.Ctx, e); !errors.As(err, &invalid) {
			b.Errorf("got %v", err)
		}
	}},
	{"Prepare may run at once in several processes", func(b *Bundle) {
		b.Must(b.DB.Drop(b.Ctx))
		var wg sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			wg.Go(func() { errs[i] = b.Store.Prepare(b.Ctx) })
		}
		wg.Wait()
		b.Must(errors.Join(errs...))
		b.Must(b.Store.Ping(b.Ctx))
		b.Publish(1)
	}},
}
