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

// WatchOptions say where a stream begins, and for whom.
type WatchOptions struct {
	// After is the place to go on from: what a Marker or Place holds. Empty: At.
	After Token
	// At and Index are the position of that place. Without After the stream begins at the cluster time At itself,
	// so that the events of At come again. Without both it begins now.
	At    Timestamp
	Index uint32
	// Collection is the UUID of the collection that the place belongs to; "": not compared.
	Collection string

	// Partition, of Partitions, is whose changes are read. Partitions ≤ 1: all.
	Partition, Partitions int
}

const (
	// maxKeySize is where a documentKey stops being one of an event. Only a giant `_id`, which stands three
	// times in its change and twice as long in the token, makes a change that is over the server's 16 MB; with a
	// smaller one the largest document fits.
	maxKeySize = 1 << 10

	// A place beyond the server's time means another history, unless the server is a new primary that is about
	// to learn how far the majority is: a little ahead is watched for a while before it is believed.
	aheadAtOnce = 10 // seconds
	aheadFor    = 3 * time.Second

	closeTimeout = 2 * time.Second
)

// Watch opens a change stream on the outbox. It returns ErrHistoryLost if the place is gone, or lies beyond the
// server's own time (a server from a backup accepts such a token and stays silent), and ErrOtherCollection if it
// belongs to another collection than o.Collection; any other error (of network, elections) is worth another try.
func (s *Store) Watch(ctx context.Context, o WatchOptions) (*Stream, error) {
	st := &Stream{
		store: s, options: o,
		token: o.After, position: Position{o.At, o.Index},
		collection: o.Collection,
		backoff:    backoff{longest: s.cfg.MaxBackoff},
	}
	if t, ok := o.After.Time(); ok && o.At.IsZero() {
		st.position = Position{Timestamp: t}
	}
	if len(o.After) == 0 {
		st.position.Index = 0 // all events of At come again
	}
	err := st.open(ctx)
	if classify(err) == tooLarge {
		st.guard()
		err = st.open(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("watch outbox: %w", st.judge(err, true))
	}
	if st.ahead() { // a first opening has no time to wait and see
		if err := st.watchAhead(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("watch outbox: %w", err), st.Close(ctx))
		}
	}
	return st, nil
}

// watchAhead asks for the server's time until the place is no longer beyond it.
func (st *Stream) watchAhead(ctx context.Context) error {
	for {
		if err := st.checkAhead(); err != nil {
			return err
		}
		if !st.ahead() {
			return nil
		}
		if err := sleep(ctx, shortestPause); err != nil {
			return err
		}
		now, err := st.store.Now(ctx)
		if err != nil {
			return err
		}
		st.now.Timestamp = now
	}
}

// pipeline keeps what is another partition's on the server. One partition reads the stream as it is.
func (st *Stream) pipeline() mongo.Pipeline {
	p := mongo.Pipeline{}
	if n := st.options.Partitions; n > 1 {
		p = append(p, matchExpr(partitionFilter("$fullDocument.hash", st.options.Partition, n)))
	}
	if st.guarded {
		p = append(p, matchExpr(bson.D{{Key: "$lt", Value: bson.A{
			bson.D{{Key: "$bsonSize", Value: "$documentKey"}}, maxKeySize}}}))
	}
	return p
}

func matchExpr(expr bson.D) bson.D {
	return bson.D{{Key: "$match", Value: bson.D{{Key: "$expr", Value: expr}}}}
}

// partitionFilter lets through what has no proper hash, and what has the partition's. $cond is lazy, so that
// $mod never meets anything but a number.
func partitionFilter(field string, partition, partitions int) bson.D {
	proper := bson.D{{Key: "$and", Value: bson.A{
		bson.D{{Key: "$eq", Value: bson.A{bson.D{{Key: "$type", Value: field}}, "int"}}},
		bson.D{{Key: "$gte", Value: bson.A{field, 0}}},
	}}}
	mine := bson.D{{Key: "$eq", Value: bson.A{
		bson.D{{Key: "$mod", Value: bson.A{field, partitions}}}, partition}}}
	return bson.D{{Key: "$cond", Value: bson.A{proper, mine, true}}}
}

// open opens the driver's stream at the place. startAfter takes every token, also that of an invalidate, which
// resumeAfter refuses.
func (st *Stream) open(ctx context.Context) error {
	s := st.store
	uuid, err := s.Collection(ctx)
	if err != nil {
		return err
	}
	if st.collection != "" && uuid != st.collection {
		return fmt.Errorf("%w: it was %s and is %q", ErrOtherCollection, st.collection, uuid)
	}
	opts := options.ChangeStream().SetBatchSize(int32(s.cfg.BatchSize)).SetMaxAwaitTime(s.cfg.AwaitTime)
	switch {
	case len(st.token) > 0:
		opts.SetStartAfter(bson.Raw(st.token))
	case !st.position.IsZero():
		opts.SetStartAtOperationTime(st.position.bson())
	}
	cs, err := s.events.Watch(watching(ctx, &st.now), st.pipeline(), opts)
	if err != nil {
		return err
	}
	st.cs, st.collection = cs, uuid
	st.arrive()
	s.identity.saw(uuid, st.position)
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
