package outbox_test

import (
	"errors"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/outbox/outboxtest"
)

// A collection that is renamed onto the outbox has documents that never passed the stream. A MongoDB reports the
// rename to streams of either name; here an insert is made to look like it.
func TestStream_RenamedOntoTheOutbox(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{})
	st := b.Watch(outbox.WatchOptions{})
	ids := b.Publish(3)
	proxy.Set(func(c outboxtest.Command) outboxtest.Verdict {
		if c.Name != "getMore" {
			return outboxtest.Verdict{}
		}
		return outboxtest.Verdict{Edit: func(reply bson.Raw) bson.Raw {
			batch, ok := reply.Lookup("cursor", "nextBatch").ArrayOK()
			if values, err := batch.Values(); !ok || err != nil || len(values) < 3 {
				return reply
			}
			return withRename(t, reply)
		}}
	})
	changes, err := readToError(b, st)
	if !errors.Is(err, outbox.ErrOtherCollection) {
		t.Errorf("got %v", err)
	}
	if got := outboxtest.IDs(changes); !slices.Equal(got, ids[:2]) {
		t.Errorf("before it: got %v, wanted %v", got, ids[:2])
	}
}

// withRename makes a rename onto the outbox of the third change.
func withRename(t *testing.T, reply bson.Raw) bson.Raw {
	var doc struct {
		Cursor struct {
			NextBatch []bson.M `bson:"nextBatch"`
			Token     bson.Raw `bson:"postBatchResumeToken"`
			ID        int64    `bson:"id"`
			NS        string   `bson:"ns"`
		} `bson:"cursor"`
		OK   float64        `bson:"ok"`
		Time bson.Timestamp `bson:"operationTime"`
	}
	if err := bson.Unmarshal(reply, &doc); err != nil {
		t.Error(err)
	}
	third := doc.Cursor.NextBatch[2]
	third["operationType"], third["to"] = "rename", bson.D{{Key: "db", Value: "outbox"}, {Key: "coll", Value: outbox.DefaultCollection}}
	delete(third, "fullDocument")
	raw, err := bson.Marshal(doc)
	if err != nil {
		t.Error(err)
	}
	return raw
}
