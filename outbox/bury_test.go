package outbox_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/outbox/outboxtest"
)

func raw(t *testing.T, doc bson.D) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A document that can't be part of another one is kept as bytes: it must not stop the relay that buries it.
func TestBury_WhatTheServerWontWrap(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{})
	var refused atomic.Int32
	proxy.Set(func(c outboxtest.Command) outboxtest.Verdict {
		if c.Name != "insert" || refused.Add(1) > 1 {
			return outboxtest.Verdict{}
		}
		return outboxtest.Verdict{Reply: bson.D{{Key: "ok", Value: 1.0}, {Key: "n", Value: int32(0)}, {Key: "writeErrors", Value: bson.A{
			bson.D{{Key: "index", Value: int32(0)}, {Key: "code", Value: int32(2)}, {Key: "errmsg", Value: "exceeds maximum nested object depth"}}}}}}
	})
	doc := raw(t, bson.D{{Key: "_id", Value: "deep"}})
	b.Must(b.Store.Bury(b.Ctx, outbox.Change{Document: doc}, "too deep"))
	var dead struct {
		Reason   string
		Document bson.Binary
	}
	b.Must(b.DB.Collection(outbox.DeadCollection).FindOne(b.Ctx, bson.D{{Key: "_id", Value: "deep"}}).Decode(&dead))
	if dead.Reason != "too deep" || string(dead.Document.Data) != string(doc) {
		t.Errorf("got %+v", dead)
	}
}

// MongoDB stores 180 levels: a document that has them all is one too deep inside another.
func TestBury_TheDeepestDocument(t *testing.T) {
	t.Parallel()
	b, _ := setup(t, outbox.Config{})
	st := b.Watch(outbox.WatchOptions{})
	value := any(1)
	for range 179 {
		value = bson.D{{Key: "d", Value: value}}
	}
	_, err := b.Events.InsertOne(b.Ctx, bson.D{{Key: "_id", Value: "deep"}, {Key: "d", Value: value}})
	b.Must(err)
	c := b.Read(st, 1)[0]
	if c.Fault == nil {
		t.Fatal("no fault")
	}
	b.Must(b.Store.Bury(b.Ctx, c, c.Fault.Error()))
	var dead struct{ Document bson.Binary }
	b.Must(b.DB.Collection(outbox.DeadCollection).FindOne(b.Ctx, bson.D{{Key: "_id", Value: "deep"}}).Decode(&dead))
	if string(dead.Document.Data) != string(c.Document) {
		t.Errorf("kept %d bytes, wanted %d", len(dead.Document.Data), len(c.Document))
	}
}

func TestBury_KeysAndSizes(t *testing.T) {
	t.Parallel()
	b, _ := setup(t, outbox.Config{})
	large := raw(t, bson.D{{Key: "_id", Value: "large"}, {Key: "x", Value: strings.Repeat("x", 16<<20-100)}})
	for _, doc := range []bson.Raw{
		large, nil, raw(t, bson.D{{Key: "no", Value: "id"}}), raw(t, bson.D{{Key: "_id", Value: 5}}),
		raw(t, bson.D{{Key: "_id", Value: int64(6)}}), raw(t, bson.D{{Key: "_id", Value: strings.Repeat("i", 500)}}),
	} {
		for range 2 {
			b.Must(b.Store.Bury(b.Ctx, outbox.Change{Document: doc}, "bad \xff"+strings.Repeat("ü", 5000)))
		}
	}
	dead := b.DB.Collection(outbox.DeadCollection)
	if n, err := dead.CountDocuments(b.Ctx, bson.D{}); n != 6 || err != nil {
		t.Errorf("%d dead documents, wanted 6: %v", n, err)
	}
	var got struct {
		Size     int
		Reason   string
		Document bson.Raw
	}
	// Whoever looks for his document finds it under the id that he gave it.
	b.Must(dead.FindOne(b.Ctx, bson.D{{Key: "_id", Value: 5}}).Err())
	b.Must(dead.FindOne(b.Ctx, bson.D{{Key: "_id", Value: "large"}}).Decode(&got))
	if got.Size != len(large) || got.Document != nil || len(got.Reason) > 4096 {
		t.Errorf("got size %d, %d bytes of document, %d of reason", got.Size, len(got.Document), len(got.Reason))
	}
}
