package embedded_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// closeLimit is how long a server may take to end. A second is plenty on a
// machine that does nothing else.
const closeLimit = 5 * time.Second

// mongoSetup is a server that runs for the length of a test, and a client of it.
type mongoSetup struct {
	server *embedded.Mongo
	client *mongo.Client
	db     *mongo.Database
	ctx    context.Context
}

func setupMongo(t *testing.T, cfg embedded.MongoConfig) *mongoSetup {
	t.Helper()
	return newSetup(t, cfg, 2*time.Minute)
}

func newSetup(t testing.TB, cfg embedded.MongoConfig, limit time.Duration) *mongoSetup {
	t.Helper()
	server := startMongo(t, cfg)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	t.Cleanup(cancel)
	client := connect(t, ctx, server)
	return &mongoSetup{server, client, client.Database("facts"), ctx}
}

func startMongo(t testing.TB, cfg embedded.MongoConfig) *embedded.Mongo {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	server, err := embedded.NewMongo(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("run: %v", err)
			}
		case <-time.After(closeLimit):
			t.Errorf("the server has not ended after %s", closeLimit)
		}
	})
	return server
}

func connect(t testing.TB, ctx context.Context, server *embedded.Mongo) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(server.URL()).SetServerSelectionTimeout(30 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(ctx)) })
	return client
}
