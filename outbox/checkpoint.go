package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Marker is how far a partition is done: everything before Position was routed.
type Marker struct {
	Token    Token    // where the stream goes on; empty: open it at Position's cluster time
	Position Position // the same place in commit order
	Tick     int64    // slots written so far: counts work, not time
}

// Slot is a marker of earlier, with the owner's clock when it was written.
type Slot struct {
	Marker
	Time time.Time
}

// Checkpoint is what MongoDB knows about a partition.
type Checkpoint struct {
	Partition  int
	Partitions int    // N when it was written
	Collection string // UUID of the outbox that Marker belongs to; "": unknown
	Fence      int64
	Marker     *Marker

	Ring   []Slot // the last RingSlots, by tick
	Hourly []Slot // one an hour, the last HourlySlots, by tick

	// NotificationsSince is when the oldest notification entry arrived that still waited then.
	NotificationsSince time.Time
}

// Checkpoint answers what is kept about a partition; nil if nothing is, or no marker yet (see Fence).
func (s *Store) Checkpoint(ctx context.Context, partition int) (*Checkpoint, error) {
	raw, err := s.checkpoints.FindOne(ctx, bson.D{{Key: "_id", Value: partition}}).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read checkpoint %d: %w", partition, err)
	}
	cp, err := decodeCheckpoint(raw)
	if err != nil {
		return nil, fmt.Errorf("read checkpoint %d: %w", partition, err)
	}
	if cp.Marker == nil {
		return nil, nil
	}
	return cp, nil
}

// Checkpoints answers all checkpoints by partition, those without a marker too.
func (s *Store) Checkpoints(ctx context.Context) ([]*Checkpoint, error) {
	cur, err := s.checkpoints.Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("read checkpoints: %w", err)
	}
	defer closeCursor(ctx, cur)
	var all []*Checkpoint
	for cur.Next(ctx) {
		cp, err := decodeCheckpoint(cur.Current)
		if err != nil {
			return nil, fmt.Errorf("read checkpoints: %w", err)
		}
		all = append(all, cp)
	}
	if err := cur.Err(); err != nil {
		return nil, fmt.Errorf("read checkpoints: %w", err)
	}
	return all, nil
}

// Fence answers the fence of a partition, 0 if it never had one. Unlike Checkpoint it knows those without a marker.
func (s *Store) Fence(ctx context.Context, partition int) (int64, error) {
	var doc struct{ Fence int64 }
	err := s.checkpoints.FindOne(ctx, bson.D{{Key: "_id", Value: partition}},
		options.FindOne().SetProjection(bson.D{{Key: "fence", Value: 1}})).Decode(&doc)
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return 0, fmt.Errorf("read fence of partition %d: %w", partition, err)
	}
	return doc.Fence, nil
}

// TakeFence raises the partition's fence, from where on writes with a smaller one are refused. It returns a
// *FencedError (ErrFenced) if the checkpoint has that fence already, or a greater one: of two callers with the
// same fence one is refused. Who is refused takes a greater one.
func (s *Store) TakeFence(ctx context.Context, partition, partitions int, fence int64) error {
	filter := bson.D{{Key: "_id", Value: partition}, {Key: "fence", Value: bson.D{{Key: "$lt", Value: fence}}}}
	set := bson.D{{Key: "$set", Value: bson.D{{Key: "fence", Value: fence}, {Key: "partitions", Value: partitions}}}}
	for {
		_, err := s.checkpoints.UpdateOne(ctx, filter, set, options.UpdateOne().SetUpsert(true))
		if err == nil {
			return nil
		}
		if !mongo.IsDuplicateKeyError(err) {
			return fmt.Errorf("take fence of partition %d: %w", partition, err)
		}
		// A greater fence is there, or the partition's first and smaller one came to be just now.
		found, err := s.Fence(ctx, partition)
		if err != nil {
			return err
		}
		if found >= fence {
			return &FencedError{Partition: partition, Fence: fence, Found: found}
		}
	}
}

// SaveMarker copies the marker, on condition of the fence, and with it the identity of the collection that it
// belongs to. The zero marker takes away what is there; a zero notificationsSince leaves it.
func (s *Store) SaveMarker(ctx context.Context, partition int, fence int64, m Marker, notificationsSince time.Time) error {
	set := bson.D{{Key: "marker", Value: encodeMarker(m)}}
	if uuid := s.identity.of(m.Position); uuid != "" {
		set = append(set, bson.E{Key: "collection", Value: uuid})
	}
	if !notificationsSince.IsZero() {
		set = append(set, bson.E{Key: "notificationsSince", Value: notificationsSince})
	}
	return s.writeCheckpoint(ctx, partition, fence, set)
}

// SaveSlot writes one slot of the ring, on condition of the fence, and with it the first of each hour to the hourly ones.
func (s *Store) SaveSlot(ctx context.Context, partition int, fence int64, slot Slot) error {
	doc := encodeSlot(slot)
	set := bson.D{{Key: ringKey(slot.Tick), Value: doc}}
	hour := slot.Time.Unix() / 3600
	due := s.hours.due(partition, hour)
	if due {
		set = append(set, bson.E{Key: hourlyKey(hour), Value: doc})
	}
	if err := s.writeCheckpoint(ctx, partition, fence, set); err != nil {
		return err
	}
	if due {
		s.hours.written(partition, hour)
	}
	return nil
}

func (s *Store) writeCheckpoint(ctx context.Context, partition int, fence int64, set bson.D) error {
	filter := bson.D{{Key: "_id", Value: partition}, {Key: "fence", Value: fence}}
	res, err := s.checkpoints.UpdateOne(ctx, filter, bson.D{{Key: "$set", Value: set}})
	if err != nil {
		return fmt.Errorf("write checkpoint %d: %w", partition, err)
	}
	if res.MatchedCount == 0 {
		return s.fenced(ctx, partition, fence)
	}
	return nil
}

func (s *Store) fenced(ctx context.Context, partition int, fence int64) error {
	found, err := s.Fence(ctx, partition)
	if err != nil {
		s.log.DebugContext(ctx, "fence could not be read", keyPartition, partition, keyError, err)
	}
	return &FencedError{Partition: partition, Fence: fence, Found: found}
}
