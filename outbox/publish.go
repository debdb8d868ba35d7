package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// Publish inserts events into coll, an application's outbox collection. With a session in ctx (the one that
// mongo.Session.WithTransaction passes) the events are part of its transaction and exist when that commits; a
// duplicate does not abort it, though one that somebody else commits meanwhile is a write conflict: WithTransaction
// repeats the transaction then, and who begins it by hand repeats it on the label TransientTransactionError.
// Without a session they are committed when Publish returns nil, at majority whatever the collection's own write
// concern; of several events some may be committed if it returns an error.
//
// An event whose id the outbox holds already is the same event: nothing happens. An event without id or time gets
// them. Events that break a rule are refused, all together, with a *protocol.ValidationError; so are types that
// are reserved for the system.
func Publish(ctx context.Context, coll *mongo.Collection, events ...protocol.Event) error {
	list := make([]*protocol.Event, len(events))
	for i := range events {
		list[i] = &events[i]
	}
	docs, err := prepareAll(list, true)
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if err := insert(ctx, coll, docs); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

// Publish inserts events, all or nothing, in a transaction of its own where there are several. They get an id
// and a time where they have none; the same id again is the same event and no error. Reserved types are let through:
// who takes events from strangers refuses them before.
func (s *Store) Publish(ctx context.Context, events ...*protocol.Event) error {
	docs, err := prepareAll(events, false)
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	switch {
	case len(docs) > 1 && mongo.SessionFromContext(ctx) == nil:
		err = s.insertTogether(ctx, docs)
	default:
		err = insert(ctx, s.events, docs)
	}
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	s.metrics.published.Add(float64(len(docs)))
	return nil
}

// insertTogether lets the driver repeat the transaction as long as the server calls its trouble transient.
func (s *Store) insertTogether(ctx context.Context, docs []bson.Raw) error {
	session, err := s.client.StartSession()
	if err != nil {
		return fmt.Errorf("start a session: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		return nil, insert(ctx, s.events, docs)
	})
	return err
}

// prepareAll validates, completes and encodes; pointers into several events begin with the event's index.
func prepareAll(events []*protocol.Event, refuseReserved bool) ([]bson.Raw, error) {
	docs := make([]bson.Raw, 0, len(events))
	var faults []protocol.Fault
	for i, e := range events {
		doc, err := prepareOne(e, refuseReserved)
		var invalid *protocol.ValidationError
		switch {
		case errors.As(err, &invalid):
			for _, f := range invalid.Faults {
				if len(events) > 1 {
					f.Pointer = "/" + strconv.Itoa(i) + f.Pointer
				}
				faults = append(faults, f)
			}
		case err != nil:
			return nil, err
		}
		docs = append(docs, doc)
	}
	if len(faults) > 0 {
		return nil, &protocol.ValidationError{Faults: faults}
	}
	return docs, nil
}

func prepareOne(e *protocol.Event, refuseReserved bool) (bson.Raw, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	if refuseReserved && protocol.ReservedType(e.Type) {
		return nil, &protocol.ValidationError{Faults: []protocol.Fault{{Pointer: "/type", Message: "is reserved for the system"}}}
	}
	e.Prepare()
	return encode(e)
}

// insert adds documents in their order. Outside a transaction a duplicate id is found by the insert itself. In
// one it would abort the transaction, so the ids are looked up first; one that comes to be between is a write
// conflict, after which the transaction is repeated by its owner. (An upsert with $setOnInsert would do that in one
// step, but before MongoDB 5 it refuses names in data that begin with a dollar.)
func insert(ctx context.Context, coll *mongo.Collection, docs []bson.Raw) error {
	session := mongo.SessionFromContext(ctx)
	inTransaction := session != nil && session.TransactionRunning()
	if inTransaction {
		missing, err := withoutExisting(ctx, coll, docs)
		if err != nil {
			return err
		}
		docs = missing
	} else {
		coll = coll.Clone(options.Collection().SetWriteConcern(writeconcern.Majority()).SetReadConcern(readconcern.Majority()))
	}
	if len(docs) == 0 {
		return nil
	}
	// Unordered means: go on behind a duplicate. One server still inserts in the order given.
	_, err := coll.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false))
	if !inTransaction {
		err = withoutDuplicateIDs(err)
	}
	if err != nil {
		return fmt.Errorf("insert into %s: %w", coll.Name(), err)
	}
	return nil
}

// withoutExisting leaves out what the transaction sees already, and repetitions within docs.
func withoutExisting(ctx context.Context, coll *mongo.Collection, docs []bson.Raw) ([]bson.Raw, error) {
	ids := make(bson.A, len(docs))
	for i, doc := range docs {
		ids[i] = doc.Lookup("_id").StringValue()
	}
	cur, err := coll.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}},
		options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("look for the same events in %s: %w", coll.Name(), err)
	}
	defer closeCursor(ctx, cur)
	have := make(map[string]bool)
	for cur.Next(ctx) {
		have[cur.Current.Lookup("_id").StringValue()] = true
	}
	if err := cur.Err(); err != nil {
		return nil, fmt.Errorf("look for the same events in %s: %w", coll.Name(), err)
	}
	missing := docs[:0:0]
	for i, doc := range docs {
		id := ids[i].(string)
		if !have[id] {
			missing = append(missing, doc)
			have[id] = true
		}
	}
	return missing, nil
}

// withoutDuplicateIDs answers nil if all that went wrong is that ids were there already. A unique index of the
// application's own is another matter.
func withoutDuplicateIDs(err error) error {
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) || bulk.WriteConcernError != nil {
		return err
	}
	for _, w := range bulk.WriteErrors {
		if w.Code != codeDuplicateKey || !isIDConflict(w.WriteError) {
			return err
		}
	}
	return nil
}

// isIDConflict reads keyPattern where the server gives it (4.4 does), else the index' name in the message.
func isIDConflict(w mongo.WriteError) bool {
	if v, err := w.Raw.LookupErr("keyPattern"); err == nil {
		if pattern, ok := v.DocumentOK(); ok {
			_, err := pattern.LookupErr("_id")
			elements, _ := pattern.Elements()
			return err == nil && len(elements) == 1
		}
	}
	return w.HasErrorMessage("index: _id_ ")
}
