package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/outbox/outboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	testkit.EachMongo(t, func(t *testing.T, s *testkit.Mongo) {
		outboxtest.Run(t, func(t *testing.T) string {
			if s.Real {
				return testkit.RealMongo(t).URL
			}
			return testkit.EmbeddedMongo(t).URL
		})
	})
}

// The driver does some things by the server's version. Here it sees that of MongoDB 4.4, the oldest we take.
func TestConformance_DriverAtVersion44(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, func(t *testing.T) string { return newMongoWith(t, embedded.MongoConfig{WireVersion: 9}) })
}

// newMongo starts an embedded server for one test: what a proxy makes of its answers is the same for all.
func newMongo(t testing.TB) string { return newMongoWith(t, embedded.MongoConfig{}) }

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
	return fmt.Sprintf("mongodb://%s/outbox?replicaSet=rs0&directConnection=true", server.Addr())
}
