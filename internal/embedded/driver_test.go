package embedded_test

import (
	"context"
	"errors"
	"testing"
	"time"

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

// A driver that looks for the members of the set finds the one.
func TestDriver_DiscoversTheSet(t *testing.T) {
	t.Parallel()
	s := setupMongo(t, embedded.MongoConfig{})
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + s.server.Addr() + "/?replicaSet=rs0"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(s.ctx) }()
	if err := client.Ping(s.ctx, nil); err != nil {
		t.Fatal(err)
	}
}

func TestDriver_Indexes(t *testing.T) {
	t.Parallel()
	s := setupMongo(t, embedded.MongoConfig{Sweep: 5 * time.Millisecond})
	c := s.db.Collection("c")
	_, err := c.Indexes().CreateMany(s.ctx, []mongo.IndexModel{
		{Keys: bson.D{{Key: "u", Value: 1}}, Options: options.Index().SetUnique(true).SetSparse(true)},
		{Keys: bson.D{{Key: "t", Value: -1}, {Key: "_id", Value: 1}}},
		{Keys: bson.D{{Key: "gone", Value: 1}}, Options: options.Index().SetExpireAfterSeconds(0)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if _, err := c.InsertOne(s.ctx, bson.D{{Key: "_id", Value: i}, {Key: "t", Value: i}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.InsertOne(s.ctx, bson.D{{Key: "_id", Value: 5}, {Key: "u", Value: "x"}}); err != nil {
		t.Fatal(err)
	}
	_, err = c.UpdateOne(s.ctx, bson.D{{Key: "_id", Value: 1}}, bson.D{{Key: "$set", Value: bson.D{{Key: "u", Value: "x"}}}})
	if !mongo.IsDuplicateKeyError(err) {
		t.Fatalf("want a duplicate key, got %v", err)
	}
	specs, err := c.Indexes().ListSpecifications(s.ctx)
	if err != nil || len(specs) != 4 {
		t.Fatalf("%d indexes, %v", len(specs), err)
	}
	if _, err := c.UpdateOne(s.ctx, bson.D{{Key: "_id", Value: 2}}, bson.D{{Key: "$set", Value: bson.D{{Key: "gone", Value: time.Now()}}}}); err != nil {
		t.Fatal(err)
	}
	for n := int64(6); n != 5; {
		if n, err = c.CountDocuments(s.ctx, bson.D{}); err != nil {
			t.Fatalf("what is past its TTL is still there: %v", err)
		}
	}
	if err := c.Indexes().DropOne(s.ctx, "u_1"); err != nil {
		t.Fatal(err)
	}
}

func TestDriver_FindAndModifyAndAggregate(t *testing.T) {
	t.Parallel()
	s := setupMongo(t, embedded.MongoConfig{})
	c := s.db.Collection("c")
	var doc struct {
		N    int
		Tags []string
	}
	after := options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After).SetProjection(bson.D{{Key: "n", Value: 1}})
	for want := 1; want <= 3; want++ {
		err := c.FindOneAndUpdate(s.ctx, bson.D{{Key: "_id", Value: "a"}},
			bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}, {Key: "$push", Value: bson.D{{Key: "tags", Value: "t"}}}}, after).Decode(&doc)
		if err != nil || doc.N != want || doc.Tags != nil {
			t.Fatalf("%+v, %v", doc, err)
		}
	}
	if err := c.FindOneAndDelete(s.ctx, bson.D{{Key: "_id", Value: "a"}}).Decode(&doc); err != nil || len(doc.Tags) != 3 {
		t.Fatalf("%+v, %v", doc, err)
	}
	if err := c.FindOneAndDelete(s.ctx, bson.D{{Key: "_id", Value: "a"}}).Err(); !errors.Is(err, mongo.ErrNoDocuments) {
		t.Fatalf("got %v", err)
	}
	for i := range 10 {
		if _, err := c.InsertOne(s.ctx, bson.D{{Key: "room", Value: i % 3}, {Key: "n", Value: i}}); err != nil {
			t.Fatal(err)
		}
	}
	var rooms []int
	if err := c.Distinct(s.ctx, "room", bson.D{{Key: "n", Value: bson.D{{Key: "$gt", Value: 1}}}}).Decode(&rooms); err != nil || len(rooms) != 3 {
		t.Fatalf("%v, %v", rooms, err)
	}
	cur, err := c.Aggregate(s.ctx, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$lt", Value: 9}}}}}},
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$room"}, {Key: "sum", Value: bson.D{{Key: "$sum", Value: "$n"}}}, {Key: "max", Value: bson.D{{Key: "$max", Value: "$n"}}}}}},
		{{Key: "$sort", Value: bson.D{{Key: "sum", Value: -1}}}},
		{{Key: "$limit", Value: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var groups []struct {
		ID       int `bson:"_id"`
		Sum, Max int
	}
	if err := cur.All(s.ctx, &groups); err != nil || len(groups) != 2 || groups[0].ID != 2 || groups[0].Sum != 15 || groups[1].Max != 7 {
		t.Fatalf("%+v, %v", groups, err)
	}
}
