package relay_test

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/outbox"
)

// smallOplog starts an embedded MongoDB that forgets its changes soon.
func smallOplog(t testing.TB, size int) *testkit.Mongo {
	t.Helper()
	m, err := embedded.NewMongo(embedded.MongoConfig{OplogSize: size, OplogMinAge: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	background(t, m.Run)
	return &testkit.Mongo{URL: m.URL()}
}

func openStore(t testing.TB, url string) *outbox.Store {
	t.Helper()
	ctx := t.Context()
	store, err := outbox.Open(ctx, url, outbox.Config{AwaitTime: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close(context.Background()) })
	if err := store.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	return store
}

// rawOutbox is the outbox' collection as other languages see it.
func (w *world) rawOutbox() *mongo.Collection {
	return w.mongo.Client(w.t).Database(w.mongo.Database()).Collection(outbox.DefaultCollection)
}

func (w *world) dead() int64 {
	w.t.Helper()
	coll := w.rawOutbox().Database().Collection(outbox.DeadCollection)
	n, err := coll.CountDocuments(context.Background(), map[string]any{})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// background runs something for the time of the test.
func background(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) // servers outlive those who use them, who end in cleanups
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stopped := false
	stop = func() {
		cancel()
		if stopped {
			return
		}
		stopped = true
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// eventually polls, since it waits for other processes.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	testkit.Eventually(t, within, what, ok)
}
