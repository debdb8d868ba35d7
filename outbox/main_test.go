package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
	"github.com/lastmile-gateway/lastmile/outbox/outboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, newMongo)
}

// newMongo starts an embedded server for one test.
func newMongo(t *testing.T) string { return newMongoWith(t, embedded.MongoConfig{}) }

var databases atomic.Int64

func newMongoWith(t testing.TB, cfg embedded.MongoConfig) string {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	server, err := embedded.NewMongo(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("embedded MongoDB: %v", err)
		}
	})
	return fmt.Sprintf("mongodb://%s/db%d?replicaSet=rs0&directConnection=true", server.Addr(), databases.Add(1))
}
