package outbox

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// retainBatch is how many documents go at once: small enough to hold up nobody's insert.
const retainBatch = 500

// Retain deletes the documents whose time lies before, oldest first, in batches, and answers how many. A document
// without a proper time is never deleted: it stands in outbox_dead, and here for whoever looks for the cause.
func (s *Store) Retain(ctx context.Context, before time.Time) (int, error) {
	total := 0
	for {
		ids, err := s.oldest(ctx, before)
		if err != nil {
			return total, fmt.Errorf("delete old events: %w", err)
		}
		if len(ids) == 0 {
			return total, nil
		}
		n, err := s.remove(ctx, ids)
		total += n
		if err != nil {
			return total, fmt.Errorf("delete old events: %w", err)
		}
	}
}

func (s *Store) oldest(ctx context.Context, before time.Time) (bson.A, error) {
	cur, err := s.events.Find(ctx, bson.D{{Key: "time", Value: bson.D{{Key: "$lt", Value: before}}}}, options.Find().
		SetProjection(bson.D{{Key: "_id", Value: 1}}).
		SetSort(bson.D{{Key: "time", Value: 1}, {Key: "_id", Value: 1}}).
		SetLimit(retainBatch).
		SetAllowDiskUse(true)) // see scan.run
	if err != nil {
		return nil, err
	}
	defer closeCursor(ctx, cur)
	var ids bson.A
	for cur.Next(ctx) {
		v := cur.Current.Lookup("_id")
		ids = append(ids, bson.RawValue{Type: v.Type, Value: append([]byte(nil), v.Value...)})
	}
	return ids, cur.Err()
}

func (s *Store) remove(ctx context.Context, ids bson.A) (int, error) {
	res, err := s.events.DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	if err != nil {
		return 0, err
	}
	s.metrics.deleted.Add(float64(res.DeletedCount))
	return int(res.DeletedCount), nil
}

// Remove deletes events by id, such as the relay's own probes once they are back. What is not there is no error.
func (s *Store) Remove(ctx context.Context, ids ...protocol.EventID) error {
	if len(ids) == 0 {
		return nil
	}
	list := make(bson.A, len(ids))
	for i, id := range ids {
		list[i] = id.String()
	}
	if _, err := s.remove(ctx, list); err != nil {
		return fmt.Errorf("remove events: %w", err)
	}
	return nil
}
