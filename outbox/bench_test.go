package outbox_test

import (
	"context"
	"testing"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/outbox/outboxtest"
	"github.com/lastmile-gateway/lastmile/protocol"
)

func benchStore(b *testing.B) (*outbox.Store, context.Context) {
	b.Helper()
	ctx := context.Background()
	store, err := outbox.Open(ctx, newMongoWith(b, embedded.MongoConfig{}), outbox.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close(ctx) })
	if err := store.Prepare(ctx); err != nil {
		b.Fatal(err)
	}
	return store, ctx
}

func events(n int) []*protocol.Event {
	list := make([]*protocol.Event, n)
	for i := range list {
		list[i] = outboxtest.Event(i)
	}
	return list
}
