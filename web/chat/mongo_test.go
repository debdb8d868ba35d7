package chat_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
)

// database gives an empty database: of the server that LASTMILE_TEST_MONGO_URL names, else of an embedded one.
func database(t *testing.T) *mongo.Database {
	t.Helper()
	name := "chat_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if at := os.Getenv("LASTMILE_TEST_MONGO_URL"); at != "" {
		db := connect(t, at, name)
		t.Cleanup(func() { _ = db.Drop(context.Background()) })
		return db
	}
	server, err := embedded.NewMongo(embedded.MongoConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("embedded: %v", err)
		}
	})
	return connect(t, server.URL(), name)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if ok() {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
	t.Fatalf("not %s within 10 s", what)
}
