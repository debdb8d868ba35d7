package outbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Scan reads the outbox itself instead of its change stream: everything with a time of from or later (zero: all
// there is), by (time, _id), and hands what falls to the partition to each in batches. It sees at least what was
// committed at majority when it began. A broken read goes on behind what each has taken, with backoff, for ever:
// Scan ends with nil, with ctx, or with the error that each returned.
//
// Documents without a proper time come first, whatever from is: they have no place in the order, and are faults.
func (s *Store) Scan(ctx context.Context, from time.Time, partition, partitions int,
	each func(context.Context, []Change) error) error {
	session, err := s.client.StartSession(options.Session().SetCausalConsistency(true))
	if err != nil {
		return fmt.Errorf("scan outbox: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))

	sc := &scan{store: s, partition: partition, partitions: partitions, each: each}
	ctx = mongo.NewSessionContext(ctx, session)
	// A reply in the session makes every later read in it wait until the majority is as far.
	if err := sc.retry(ctx, func(ctx context.Context) error { return s.Ping(ctx) }); err != nil {
		return fmt.Errorf("scan outbox: %w", err)
	}
	if err := sc.retry(ctx, sc.timeless); err != nil {
		return fmt.Errorf("scan outbox: %w", err)
	}
	sc.from = from
	if err := sc.retry(ctx, sc.timed); err != nil {
		return fmt.Errorf("scan outbox: %w", err)
	}
	return nil
}

type scan struct {
	store                 *Store
	partition, partitions int
	each                  func(context.Context, []Change) error

	from  time.Time
	after bson.D // the (time, _id) that each has taken last; nil: none
}

// errOfEach marks what comes from the caller's function, which ends the scan.
type errOfEach struct{ error }

func (sc *scan) retry(ctx context.Context, read func(context.Context) error) error {
	pause := backoff{longest: sc.store.cfg.MaxBackoff}
	for {
		err := read(ctx)
		var own errOfEach
		switch {
		case err == nil:
			return nil
		case errors.As(err, &own):
			return own.error
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if pause.tries == 0 {
			sc.store.log.WarnContext(ctx, "scan broke; going on behind what was read", keyError, err)
		}
		if err := sleep(ctx, pause.next()); err != nil {
			return err
		}
	}
}

func (sc *scan) timeless(ctx context.Context) error {
	filter := bson.D{{Key: "time", Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$type", Value: "date"}}}}}}
	return sc.run(ctx, filter, bson.D{{Key: "_id", Value: 1}}, false)
}

func (sc *scan) timed(ctx context.Context) error {
	from := bson.NewDateTimeFromTime(sc.from)
	if sc.from.IsZero() {
		from = math.MinInt64 // only dates compare with dates
	}
	filter := bson.D{{Key: "time", Value: bson.D{{Key: "$gte", Value: from}}}}
	if sc.after != nil {
		t, id := sc.after[0].Value, sc.after[1].Value
		filter = bson.D{{Key: "$or", Value: bson.A{
			bson.D{{Key: "time", Value: t}, {Key: "_id", Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$lte", Value: id}}}}}}, // also of other types
			bson.D{{Key: "time", Value: bson.D{{Key: "$gt", Value: t}}}},
		}}}
	}
	return sc.run(ctx, filter, bson.D{{Key: "time", Value: 1}, {Key: "_id", Value: 1}}, true)
}

// run hands a query's documents on, one server batch at a time. The index gives the order; but one document with an
// array for a time makes it an index of arrays, which no longer gives the order of a range: then the server sorts,
// and is allowed more than its memory for it.
func (sc *scan) run(ctx context.Context, filter, sort bson.D, remember bool) error {
	size := sc.store.cfg.BatchSize
	cur, err := sc.store.events.Find(ctx, filter, options.Find().SetSort(sort).SetBatchSize(int32(size)).SetAllowDiskUse(true))
	if err != nil {
		return err
	}
	defer closeCursor(ctx, cur)
	var batch []Change
	var last bson.Raw
	for cur.Next(ctx) {
		last = cur.Current
		if c := sc.store.change(cur.Current, sc.partitions); c.mine(sc.partition, sc.partitions) {
			batch = append(batch, c)
		}
		if cur.RemainingBatchLength() > 0 && len(batch) < size {
			continue
		}
		if err := sc.hand(ctx, batch); err != nil {
			return err
		}
		batch = nil
		// Behind an array that holds a date stands nothing but greater arrays: the place before it does.
		if remember && last.Lookup("time").Type == bson.TypeDateTime {
			sc.after = bson.D{{Key: "time", Value: last.Lookup("time")}, {Key: "_id", Value: last.Lookup("_id")}}
		}
	}
	return cur.Err()
}

func (sc *scan) hand(ctx context.Context, batch []Change) error {
	if len(batch) == 0 {
		return nil
	}
	// The caller's own writes to MongoDB (Bury) are not to run in the scan's session.
	if err := sc.each(withoutSession{ctx}, batch); err != nil {
		return errOfEach{err}
	}
	return nil
}

// withoutSession hides the session in a context.
type withoutSession struct{ context.Context }

func (c withoutSession) Value(key any) any {
	v := c.Context.Value(key)
	if _, is := v.(*mongo.Session); is {
		return nil
	}
	return v
}
