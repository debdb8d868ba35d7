package embedded_test

import (
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
)

func event(id string, recipients int) bson.D {
	to := make([]string, recipients)
	for i := range to {
		to[i] = fmt.Sprintf("user-%06d", i)
	}
	return bson.D{
		{Key: "_id", Value: id}, {Key: "to", Value: to}, {Key: "type", Value: "chat.message"},
		{Key: "data", Value: bson.D{{Key: "text", Value: "hello"}}}, {Key: "hash", Value: int32(7)}, {Key: "time", Value: time.Now()},
	}
}

// fill stores n events of 1,000 recipients, with the indexes of an outbox.
func fill(b testing.TB, s *mongoSetup, n int) *mongo.Collection {
	b.Helper()
	c := s.db.Collection("outbox")
	_, err := c.Indexes().CreateOne(s.ctx, mongo.IndexModel{Keys: bson.D{{Key: "time", Value: 1}, {Key: "_id", Value: 1}}})
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; i < n; i += 500 {
		docs := make([]any, 0, 500)
		for j := range 500 {
			docs = append(docs, event(fmt.Sprintf("old-%06d", i+j), 1000))
		}
		if _, err := c.InsertMany(s.ctx, docs); err != nil {
			b.Fatal(err)
		}
	}
	return c
}

func BenchmarkInsertOne(b *testing.B) {
	for _, size := range []int{1, 1000} {
		b.Run(fmt.Sprintf("recipients=%d", size), func(b *testing.B) {
			s := benchMongo(b)
			c := fill(b, s, 10_000)
			for i := 0; b.Loop(); i++ {
				if _, err := c.InsertOne(s.ctx, event(fmt.Sprint(i), size)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkInsertManyThousand(b *testing.B) {
	s := benchMongo(b)
	c := fill(b, s, 10_000)
	for i := 0; b.Loop(); i++ {
		docs := make([]any, 1000)
		for j := range docs {
			docs[j] = event(fmt.Sprintf("%d-%d", i, j), 1)
		}
		if _, err := c.InsertMany(s.ctx, docs); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCommitToEvent is the time from the insert's beginning to its event.
func BenchmarkCommitToEvent(b *testing.B) {
	s := benchMongo(b)
	c := fill(b, s, 10_000)
	stream, err := c.Watch(s.ctx, mongo.Pipeline{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = stream.Close(s.ctx) }()
	for i := 0; b.Loop(); i++ {
		if _, err := c.InsertOne(s.ctx, event(fmt.Sprint(i), 1)); err != nil {
			b.Fatal(err)
		}
		if !stream.Next(s.ctx) {
			b.Fatal(stream.Err())
		}
	}
}

func BenchmarkFindByID(b *testing.B) {
	s := benchMongo(b)
	c := fill(b, s, 10_000)
	ids := bson.A{"old-000005", "old-004000", "old-009999", "none"}
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
	for b.Loop() {
		cur, err := c.Find(s.ctx, filter)
		if err != nil {
			b.Fatal(err)
		}
		var docs []bson.Raw
		if err := cur.All(s.ctx, &docs); err != nil || len(docs) != 3 {
			b.Fatal(len(docs), err)
		}
	}
}

func BenchmarkDeleteOldest(b *testing.B) {
	s := benchMongo(b)
	c := fill(b, s, 10_000)
	filter := bson.D{{Key: "time", Value: bson.D{{Key: "$lt", Value: time.Now().Add(-time.Hour)}}}}
	for b.Loop() {
		if _, err := c.DeleteMany(s.ctx, filter); err != nil {
			b.Fatal(err)
		}
	}
}

func benchMongo(b *testing.B) *mongoSetup { return newSetup(b, embedded.MongoConfig{}, 10*time.Minute) }
