package relay

import (
	"context"
	"time"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// Outbox is the relay's view of the outbox: an [outbox.Store], or one with faults
// put before it.
type Outbox interface {
	Streams
	Checkpoints
	Documents
}

// Streams reads the outbox in commit order, and by time.
type Streams interface {
	Watch(ctx context.Context, o outbox.WatchOptions) (Stream, error)
	Scan(ctx context.Context, from time.Time, partition, partitions int, each func(context.Context, []outbox.Change) error) error
	Collection(ctx context.Context) (string, error)
	Now(ctx context.Context) (outbox.Timestamp, error)
}

// Stream is an open change stream; see [outbox.Stream].
type Stream interface {
	Next(ctx context.Context) ([]outbox.Change, error)
	Place() (outbox.Token, outbox.Position)
	Close(ctx context.Context) error
}

// Checkpoints keeps a partition's place where a loss of Redis can't reach it.
type Checkpoints interface {
	Checkpoint(ctx context.Context, partition int) (*outbox.Checkpoint, error)
	Checkpoints(ctx context.Context) ([]*outbox.Checkpoint, error)
	Fence(ctx context.Context, partition int) (int64, error)
	TakeFence(ctx context.Context, partition, partitions int, fence int64) error
	SaveMarker(ctx context.Context, partition int, fence int64, m outbox.Marker, notificationsSince time.Time) error
	SaveSlot(ctx context.Context, partition int, fence int64, slot outbox.Slot) error
}

// Documents is what a relay does to events themselves.
type Documents interface {
	Ping(ctx context.Context) error
	Publish(ctx context.Context, events ...*protocol.Event) error
	Remove(ctx context.Context, ids ...protocol.EventID) error
	Bury(ctx context.Context, c outbox.Change, reason string) error
	Retain(ctx context.Context, before time.Time) (int, error)
}

// storeOutbox fits a Store to Outbox: Watch answers a concrete type there.
type storeOutbox struct{ *outbox.Store }

func (s storeOutbox) Watch(ctx context.Context, o outbox.WatchOptions) (Stream, error) {
	st, err := s.Store.Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	return st, nil
}

// Over fits a Store to the Outbox that [NewOver] takes.
func Over(store *outbox.Store) Outbox { return storeOutbox{store} }
