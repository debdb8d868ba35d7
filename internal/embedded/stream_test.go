package embedded_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
)

// A partition's filter lets through a document whose hash is no int32 >= 0, and
// one whose hash falls to the partition.
func TestStream_PartitionFilter(t *testing.T) {
	t.Parallel()
	s := setupMongo(t, embedded.MongoConfig{})
	c := s.db.Collection("outbox")
	const hash = "$fullDocument.hash"
	pipeline := mongo.Pipeline{bson.D{{Key: "$match", Value: bson.D{
		{Key: "operationType", Value: bson.D{{Key: "$in", Value: bson.A{"insert", "drop"}}}},
		{Key: "$expr", Value: bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: "$ne", Value: bson.A{bson.D{{Key: "$type", Value: hash}}, "int"}}},
			bson.D{{Key: "$lt", Value: bson.A{hash, 0}}},
			bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$mod", Value: bson.A{hash, 4}}}, 1}}},
		}}}},
	}}}}
	stream, err := c.Watch(s.ctx, pipeline)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close(s.ctx) }()
	docs := []any{
		bson.D{{Key: "_id", Value: "mine"}, {Key: "hash", Value: int32(5)}},
		bson.D{{Key: "_id", Value: "other"}, {Key: "hash", Value: int32(6)}},
		bson.D{{Key: "_id", Value: "none"}},
		bson.D{{Key: "_id", Value: "text"}, {Key: "hash", Value: "6"}},
		bson.D{{Key: "_id", Value: "negative"}, {Key: "hash", Value: int32(-2)}},
		bson.D{{Key: "_id", Value: "long"}, {Key: "hash", Value: int64(6)}},
		bson.D{{Key: "_id", Value: "end"}, {Key: "hash", Value: int32(1)}},
	}
	if _, err := c.InsertMany(s.ctx, docs); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"mine", "none", "text", "negative", "long", "end"} {
		if !stream.Next(s.ctx) {
			t.Fatal(stream.Err())
		}
		if got := stream.Current.Lookup("documentKey", "_id").StringValue(); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}

func TestStream_IdleTokensMoveAndAreResumable(t *testing.T) {
	t.Parallel()
	s := setupMongo(t, embedded.MongoConfig{IdleWrite: 5 * time.Millisecond})
	c := s.db.Collection("c")
	stream, err := c.Watch(s.ctx, mongo.Pipeline{}, options.ChangeStream().SetMaxAwaitTime(5*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	first := stream.ResumeToken().Lookup("_data").StringValue()
	for stream.ResumeToken().Lookup("_data").StringValue() <= first {
		if stream.TryNext(s.ctx) {
			t.Fatalf("an event out of nothing: %s", stream.Current)
		}
		if stream.Err() != nil {
			t.Fatal(stream.Err())
		}
	}
	token := stream.ResumeToken()
	_ = stream.Close(s.ctx)
	if _, err := c.InsertOne(s.ctx, bson.D{{Key: "_id", Value: 1}}); err != nil {
		t.Fatal(err)
	}
	again, err := c.Watch(s.ctx, mongo.Pipeline{}, options.ChangeStream().SetResumeAfter(token))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close(s.ctx) }()
	if !again.Next(s.ctx) {
		t.Fatal(again.Err())
	}
}

func TestStream_DropInvalidatesAndTheCollectionGetsANewUUID(t *testing.T) {
	t.Parallel()
	s := setupMongo(t, embedded.MongoConfig{})
	c := s.db.Collection("c")
	uuidOf := func() string {
		t.Helper()
		specs, err := s.db.ListCollectionSpecifications(s.ctx, bson.D{{Key: "name", Value: "c"}})
		if err != nil || len(specs) != 1 || len(specs[0].UUID.Data) != 16 {
			t.Fatalf("%v, %v", specs, err)
		}
		return fmt.Sprintf("%x", specs[0].UUID.Data)
	}
	if err := s.db.CreateCollection(s.ctx, "c"); err != nil {
		t.Fatal(err)
	}
	before := uuidOf()
	stream, err := c.Watch(s.ctx, mongo.Pipeline{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close(s.ctx) }()
	if err := c.Drop(s.ctx); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"drop", "invalidate"} {
		if !stream.Next(s.ctx) || stream.Current.Lookup("operationType").StringValue() != want {
			t.Fatalf("got %s, %v", stream.Current, stream.Err())
		}
	}
	if stream.Next(s.ctx) || stream.ID() != 0 {
		t.Fatal("the stream goes on")
	}
	if _, err := c.InsertOne(s.ctx, bson.D{}); err != nil {
		t.Fatal(err)
	}
	if uuidOf() == before {
		t.Fatal("the new collection has the old one's UUID")
	}
	again, err := c.Watch(s.ctx, mongo.Pipeline{}, options.ChangeStream().SetStartAfter(stream.ResumeToken()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close(s.ctx) }()
	if !again.Next(s.ctx) {
		t.Fatal(again.Err())
	}
}

// A client that goes away in the middle of a long getMore holds nothing: the
// server ends at once. So does one that is idle.
func TestStream_ServerEndsUnderAWaitingGetMore(t *testing.T) {
	t.Parallel()
	server, err := embedded.NewMongo(embedded.MongoConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	c, idle := dialRaw(t, server), dialRaw(t, server)
	idle.must(`{"ping": 1}`)
	id := c.must(`{"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}}`).Lookup("cursor", "id").Int64()
	c.send(bson.D{{Key: "getMore", Value: id}, {Key: "collection", Value: "c"}, {Key: "maxTimeMS", Value: 60_000}, {Key: "$db", Value: "facts"}})
	idle.must(`{"ping": 1}`)
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(closeLimit):
		t.Fatalf("the server has not ended after %s", closeLimit)
	}
}
