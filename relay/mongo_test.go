package relay_test

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/lastmile-gateway/lastmile/outbox"
)

// rawOutbox is the outbox' collection as other languages see it.
func rawOutbox(t testing.TB, url string) *mongo.Collection {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client.Database(outbox.DefaultDatabase).Collection(outbox.DefaultCollection)
}
