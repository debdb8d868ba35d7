package outboxtest

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

var fetchTests = []test{
	{"answers what is there", func(b *Bundle) {
		ids := b.Publish(5)
		_, err := b.Events.InsertOne(b.Ctx, with(document(Event(0)), "_id", protocol.NewEventID().String()))
		b.Must(err)
		bad := protocol.NewEventID()
		_, err = b.Events.InsertOne(b.Ctx, with(with(document(Event(0)), "_id", bad.String()), "data", 5))
		b.Must(err)
		missing := protocol.NewEventID()
		got, err := b.Store.Fetch(b.Ctx, append(ids, bad, missing)...)
		b.Must(err)
		if len(got) != 5 {
			b.Fatalf("%d envelopes, wanted 5", len(got))
		}
		for i, id := range ids {
			v := got[id]
			if v == nil || v.ID != id || !strings.Contains(string(v.Body), fmt.Sprintf(`"data":{"n":%d}`, i)) {
				b.Errorf("event %d: %+v", i, v)
			}
		}
		empty, err := b.Store.Fetch(b.Ctx)
		b.Must(err)
		if len(empty) != 0 {
			b.Error("nothing asked, something answered")
		}
	}},
	{"many at once are gathered", func(b *Bundle) {
		store := reopen(b, outbox.Config{CacheBytes: -1})
		ids := b.Publish(40)
		var wg sync.WaitGroup
		errs := make([]error, len(ids))
		for i := range ids {
			wg.Go(func() {
				got, err := store.Fetch(b.Ctx, ids[i], ids[(i+1)%len(ids)])
				if err == nil && (len(got) != 2 || got[ids[i]] == nil) {
					err = fmt.Errorf("call %d got %d envelopes", i, len(got))
				}
				errs[i] = err
			})
		}
		wg.Wait()
		b.Must(errors.Join(errs...))
	}},
	{"what passes by is remembered", func(b *Bundle) {
		id := protocol.NewEventID()
		b.Store.Remember(&protocol.Envelope{ID: id, Type: "t", Body: []byte(`{}`)})
		b.Store.Remember(nil)
		got, err := b.Store.Fetch(b.Ctx, id)
		b.Must(err)
		if got[id] == nil {
			b.Error("forgotten")
		}
		other := reopen(b, outbox.Config{CacheBytes: -1})
		other.Remember(got[id])
		if got, err := other.Fetch(b.Ctx, id); err != nil || len(got) != 0 {
			b.Errorf("without a cache: %v, %v", got, err)
		}
	}},
	{"one by one", func(b *Bundle) {
		id := b.Publish(1)[0]
		e, err := b.Store.Get(b.Ctx, id)
		b.Must(err)
		if e.ID != id || string(e.Data) != `{"n":0}` {
			b.Errorf("got %+v", e)
		}
		_, err = b.Store.Get(b.Ctx, protocol.NewEventID())
		b.wantError(err, outbox.ErrNotFound)
		_, err = b.Events.UpdateOne(b.Ctx, byID(id), bson.D{{Key: "$set", Value: bson.D{{Key: "type", Value: 5}}}})
		b.Must(err)
		var invalid *protocol.ValidationError
		if _, err = b.Store.Get(b.Ctx, id); !errors.As(err, &invalid) {
			b.Errorf("a malformed one: %v", err)
		}
	}},
}
