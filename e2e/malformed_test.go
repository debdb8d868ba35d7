package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// database connects as an application in another language would: with nothing but the driver.
func database(t testing.TB, url string) *mongo.Database {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	name := "lastmile"
	if _, path, found := strings.Cut(strings.TrimPrefix(url, "mongodb://"), "/"); found {
		if before, _, _ := strings.Cut(path, "?"); before != "" {
			name = before
		}
	}
	return client.Database(name)
}

func goodDocument(id, user string) bson.M {
	return bson.M{"_id": id, "to": bson.A{user}, "type": "test", "data": bson.M{"n": 1}, "time": time.Now()}
}

// malformedDocuments are outbox documents that are no events, by what is wrong with them.
func malformedDocuments(user string) map[string]bson.M {
	kinds := map[string]bson.M{}
	add := func(name string, change func(bson.M)) {
		document := goodDocument(uuid.Must(uuid.NewV7()).String(), user)
		change(document)
		kinds[name] = document
	}
	for _, field := range []string{"to", "type", "data", "time"} {
		add("no "+field, func(d bson.M) { delete(d, field) })
	}
	wrong := map[string]any{"a number": 7, "a boolean": true, "null": nil, "a string": "x", "an array": bson.A{1}, "a document": bson.M{"a": 1}, "a date": time.Now()}
	right := map[string][]string{
		"to": {}, "type": {"a string"}, "source": {"a string", "null"}, "subject": {"a string", "null"}, "data": {"a document"},
		"key": {"a string", "null"}, "time": {"a date"}, "expiresAt": {"a date", "null"},
		"ephemeral": {"a boolean", "null"}, "notify": {"a boolean", "null"}, "traceparent": {"a string", "null"},
	}
	for field, allowed := range right {
		for kind, value := range wrong {
			if !contains(allowed, kind) {
				add(field+" is "+kind, func(d bson.M) { d[field] = value })
			}
		}
	}
	add("empty to", func(d bson.M) { d["to"] = bson.A{} })
	add("recipient too long", func(d bson.M) { d["to"] = bson.A{user, strings.Repeat("u", 129)} })
	add("recipient with a control character", func(d bson.M) { d["to"] = bson.A{"a\x01b"} })
	add("recipient empty", func(d bson.M) { d["to"] = bson.A{""} })
	add("type empty", func(d bson.M) { d["type"] = "" })
	add("type too long", func(d bson.M) { d["type"] = strings.Repeat("t", 129) })
	add("source too long", func(d bson.M) { d["source"] = strings.Repeat("s", 257) })
	add("subject too long", func(d bson.M) { d["subject"] = strings.Repeat("s", 257) })
	add("data too large", func(d bson.M) { d["data"] = bson.M{"x": strings.Repeat("d", 300<<10)} })
	add("id is no UUID", func(d bson.M) { d["_id"] = "not-a-uuid-" + user })
	add("id in capitals", func(d bson.M) { d["_id"] = strings.ToUpper(uuid.NewString()) })
	add("id is an ObjectID", func(d bson.M) { d["_id"] = bson.NewObjectID() })
	add("id is a number", func(d bson.M) { d["_id"] = 4711 })
	return kinds
}

func contains(list []string, one string) bool {
	for _, s := range list {
		if s == one {
			return true
		}
	}
	return false
}

// A document of the wrong shape never stops the next good one, and stands among the dead with its reason.
func TestMalformedDocumentsNeverBlock(t *testing.T) {
	t.Parallel()
	s, _ := startDev(t)
	db := database(t, s.MongoURL)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	reader := newDevice(t, "frank", s.TokenSecret)
	reader.connect(s.Sockets[0])

	kinds := malformedDocuments("frank")
	if len(kinds) < 50 {
		t.Fatalf("only %d kinds", len(kinds))
	}
	shown := 0
	for name, document := range kinds {
		if _, err := db.Collection("outbox").InsertOne(ctx, document); err != nil {
			t.Fatalf("insert %s: %v", name, err)
		}
		good := uuid.Must(uuid.NewV7()).String()
		if _, err := db.Collection("outbox").InsertOne(ctx, goodDocument(good, "frank")); err != nil {
			t.Fatal(err)
		}
		shown++
		testkit.Eventually(t, limit(2*time.Second), "the good event behind: "+name, func() bool { return reader.count() >= shown })
		if ids := reader.ids(); ids[len(ids)-1] != good {
			t.Fatalf("%s: shown %s, want %s", name, ids[len(ids)-1], good)
		}
	}
	for name, document := range kinds {
		var dead bson.M
		testkit.Eventually(t, 5*time.Second, name+" is among the dead", func() bool {
			return db.Collection("outbox_dead").FindOne(ctx, bson.M{"_id": document["_id"]}).Decode(&dead) == nil
		})
		if reason := fmt.Sprint(dead["reason"]); reason == "" || reason == "<nil>" {
			t.Errorf("%s: buried without a reason: %v", name, dead)
		}
	}
	reader.check()
}
