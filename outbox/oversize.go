package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// errOversize is the fault of a document whose change the server can't send.
var errOversize = errors.New("its _id is so large that MongoDB can't put its change into a stream")

// guard makes the next opening filter out changes of giant ids.
func (st *Stream) guard() {
	st.guarded, st.guardedAt = true, st.position
	st.retryAt = time.Time{}
}

// unguard ends the filter once the place is past what could not be sent, and makes faults of the documents that
// were left out: every one before the place is committed by now, and one behind it will be met again.
func (st *Stream) unguard(ctx context.Context) error {
	found, err := st.store.oversize(ctx)
	if err != nil {
		return st.broken(ctx, err, false) // still guarded
	}
	for _, doc := range found {
		c := st.store.change(doc, st.options.Partitions)
		c.Event, c.Fault = nil, fmt.Errorf("bad event: %w", errOversize)
		c.Position, c.Token = st.position, st.token
		if c.mine(st.options.Partition, st.options.Partitions) {
			st.extra = append(st.extra, c)
		}
	}
	st.guarded = false
	st.drop(ctx)
	return nil
}

// oversize finds the documents by the measure of the filter, but for those that are buried already.
func (s *Store) oversize(ctx context.Context) ([]bson.Raw, error) {
	key := bson.D{{Key: "_id", Value: "$_id"}}
	cur, err := s.events.Find(ctx, bson.D{{Key: "$expr", Value: bson.D{{Key: "$gte", Value: bson.A{
		bson.D{{Key: "$bsonSize", Value: key}}, maxKeySize}}}}})
	if err != nil {
		return nil, fmt.Errorf("look for oversized documents: %w", err)
	}
	defer closeCursor(ctx, cur)
	var found []bson.Raw
	for cur.Next(ctx) {
		err := s.dead.FindOne(ctx, bson.D{{Key: "_id", Value: deadKey(cur.Current)}}).Err()
		if errors.Is(err, mongo.ErrNoDocuments) {
			found = append(found, append(bson.Raw(nil), cur.Current...))
		} else if err != nil {
			return nil, fmt.Errorf("look for oversized documents: %w", err)
		}
	}
	if err := cur.Err(); err != nil {
		return nil, fmt.Errorf("look for oversized documents: %w", err)
	}
	return found, nil
}
