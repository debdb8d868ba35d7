package embedded_test

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
)

func TestDriver_CRUD(t *testing.T) {
	t.Parallel()
	s := setupMongo(t, embedded.MongoConfig{})
	c := s.db.Collection("c")
	docs := []any{}
	for i := range 250 {
		docs = append(docs, bson.D{{Key: "_id", Value: i}, {Key: "t", Value: 250 - i}})
	}
	if _, err := c.InsertMany(s.ctx, docs); err != nil {
		t.Fatal(err)
	}
	_, err := c.InsertOne(s.ctx, bson.D{{Key: "_id", Value: 3}})
	if !mongo.IsDuplicateKeyError(err) {
		t.Fatalf("want a duplicate key, got %v", err)
	}
	cur, err := c.Find(s.ctx, bson.D{{Key: "t", Value: bson.D{{Key: "$gt", Value: 10}}}},
		options.Find().SetSort(bson.D{{Key: "t", Value: 1}}).SetLimit(200).SetSkip(5).SetBatchSize(7))
	if err != nil {
		t.Fatal(err)
	}
	var got []struct{ T int }
	if err := cur.All(s.ctx, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 200 || got[0].T != 16 || got[199].T != 215 {
		t.Fatalf("got %d documents, first and last %v", len(got), got)
	}
	n, err := c.CountDocuments(s.ctx, bson.D{{Key: "t", Value: bson.D{{Key: "$lte", Value: 100}}}})
	if err != nil || n != 100 {
		t.Fatalf("count: %d %v", n, err)
	}
	if n, err = c.EstimatedDocumentCount(s.ctx); err != nil || n != 250 {
		t.Fatalf("estimated count: %d %v", n, err)
	}
	res, err := c.UpdateMany(s.ctx, bson.D{{Key: "t", Value: bson.D{{Key: "$lte", Value: 100}}}}, bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: 1}}}})
	if err != nil || res.MatchedCount != 100 || res.ModifiedCount != 100 {
		t.Fatalf("update: %+v %v", res, err)
	}
	del, err := c.DeleteMany(s.ctx, bson.D{{Key: "x", Value: 1}})
	if err != nil || del.DeletedCount != 100 {
		t.Fatalf("delete: %+v %v", del, err)
	}
}

func TestDriver_TransactionCommitAndAbort(t *testing.T) {
	t.Parallel()
	s := setupMongo(t, embedded.MongoConfig{})
	a, b := s.db.Collection("a"), s.db.Collection("b")
	session, err := s.client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(s.ctx)
	insertBoth := func(id string, fail error) error {
		_, err := session.WithTransaction(s.ctx, func(ctx context.Context) (any, error) {
			for _, c := range []*mongo.Collection{a, b} {
				if _, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: id}}); err != nil {
					return nil, err
				}
			}
			if n, err := a.CountDocuments(s.ctx, bson.D{{Key: "_id", Value: id}}); err != nil || n != 0 {
				t.Errorf("seen outside before the commit: %d %v", n, err)
			}
			return nil, fail
		})
		return err
	}
	if err := insertBoth("kept", nil); err != nil {
		t.Fatal(err)
	}
	wanted := errors.New("no")
	if err := insertBoth("gone", wanted); !errors.Is(err, wanted) {
		t.Fatalf("got %v", err)
	}
	for _, c := range []*mongo.Collection{a, b} {
		if n, err := c.CountDocuments(s.ctx, bson.D{}); err != nil || n != 1 {
			t.Fatalf("%s: %d documents, %v", c.Name(), n, err)
		}
	}
}

func TestDriver_StreamResumes(t *testing.T) {
	t.Parallel()
	s := setupMongo(t, embedded.MongoConfig{})
	c := s.db.Collection("s")
	stream, err := c.Watch(s.ctx, mongo.Pipeline{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := c.InsertOne(s.ctx, bson.D{{Key: "_id", Value: i}}); err != nil {
			t.Fatal(err)
		}
	}
	nextID := func(stream *mongo.ChangeStream) int32 {
		t.Helper()
		if !stream.Next(s.ctx) {
			t.Fatalf("stream ended: %v", stream.Err())
		}
		return stream.Current.Lookup("documentKey", "_id").Int32()
	}
	if id := nextID(stream); id != 0 {
		t.Fatalf("first event is of %d", id)
	}
	token := stream.ResumeToken()
	_ = stream.Close(s.ctx)
	stream, err = c.Watch(s.ctx, mongo.Pipeline{}, options.ChangeStream().SetResumeAfter(token))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close(s.ctx) }()
	if x, y := nextID(stream), nextID(stream); x != 1 || y != 2 {
		t.Fatalf("resumed with %d, %d", x, y)
	}
}
