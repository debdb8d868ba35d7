package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// open checks the server and makes the outbox with the outbox' own means, so that it doesn't matter which
// process starts first, and connects. An application would have its client already.
func open(ctx context.Context, cfg Config) (*mongo.Database, error) {
	cs, err := connstring.Parse(cfg.MongoURL)
	if err != nil {
		return nil, errors.New("open chat: the MongoDB URL can't be read") // the cause may quote the password
	}
	name := cs.Database
	if name == "" {
		name = outbox.DefaultDatabase
	}
	store, err := outbox.Open(ctx, cfg.MongoURL, outbox.Config{Collection: cfg.Outbox, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	err = store.Prepare(ctx)
	if err := errors.Join(err, store.Close(context.WithoutCancel(ctx))); err != nil {
		return nil, fmt.Errorf("prepare outbox: %w", err)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(cfg.MongoURL).SetReadPreference(readpref.Primary())) // see find
	if err != nil {
		return nil, fmt.Errorf("connect to MongoDB: %w", err)
	}
	return client.Database(name), nil
}

// prepare makes the indexes and the lobby; again and from several processes at once is fine.
func (s *Server) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	unique := options.Index().SetUnique(true)
	indexes := []struct {
		coll  *mongo.Collection
		model mongo.IndexModel
	}{
		{s.messages, mongo.IndexModel{Keys: bson.D{{Key: "room", Value: 1}, {Key: "seq", Value: 1}}, Options: unique}},
		{s.members, mongo.IndexModel{Keys: bson.D{{Key: "room", Value: 1}, {Key: "user", Value: 1}}, Options: unique}},
		{s.members, mongo.IndexModel{Keys: bson.D{{Key: "user", Value: 1}}}},
	}
	for _, index := range indexes {
		if _, err := index.coll.Indexes().CreateOne(ctx, index.model); err != nil {
			return fmt.Errorf("make index of %s: %w", index.coll.Name(), err)
		}
	}
	_, err := s.rooms.UpdateOne(ctx, bson.D{{Key: "_id", Value: Lobby}},
		bson.D{{Key: "$setOnInsert", Value: bson.D{
			{Key: "title", Value: "Lobby"}, {Key: "seq", Value: int64(0)}, {Key: "members", Value: int64(0)}, {Key: "createdAt", Value: now()},
		}}}, options.UpdateOne().SetUpsert(true))
	if err != nil && !mongo.IsDuplicateKeyError(err) {
		return fmt.Errorf("make the lobby: %w", err)
	}
	return nil
}

// transaction, on a room, runs do until it is committed by a majority: a weaker one could be rolled back after its
// event was delivered. The driver runs do again when it met another transaction, so do must be repeatable.
func (s *Server) transaction(ctx context.Context, room string, do func(ctx context.Context) error) error {
	release, err := s.turns.hold(ctx, room)
	if err != nil {
		return fmt.Errorf("wait for room %s: %w", room, err)
	}
	defer release()
	session, err := s.db.Client().StartSession()
	if err != nil {
		return fmt.Errorf("start session: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		return nil, do(ctx)
	}, options.Transaction().SetWriteConcern(writeconcern.Majority()))
	return err
}

// publish adds an event to the transaction that ctx carries.
func (s *Server) publish(ctx context.Context, eventType, room string, to []protocol.UserID, data any) error {
	body, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode %s: %w", eventType, err)
	}
	return outbox.Publish(ctx, s.outbox, protocol.Event{
		Type:    eventType,
		Source:  "chat",
		Subject: "room:" + room,
		To:      to,
		Data:    body,
		// Who is away wants to hear of messages, not of who came in.
		SkipNotify: eventType != messageEvent,
	})
}

// recipients are all members of a room, the sender too: his other devices want the message as well.
func (s *Server) recipients(ctx context.Context, room string) ([]protocol.UserID, error) {
	members, err := find[Member](ctx, s.members, bson.D{{Key: "room", Value: room}})
	if err != nil {
		return nil, err
	}
	to := make([]protocol.UserID, len(members))
	for i, m := range members {
		to[i] = protocol.UserID(m.User)
	}
	return to, nil
}

// find reads all documents of a query; with a context of a transaction within it. The client's read
// preference must be the primary (the default): an answer has to hold all that was committed before.
func find[T any](ctx context.Context, coll *mongo.Collection, filter any, opts ...options.Lister[options.FindOptions]) ([]T, error) {
	cursor, err := coll.Find(ctx, filter, opts...)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", coll.Name(), err)
	}
	found := []T{}
	if err := cursor.All(ctx, &found); err != nil {
		return nil, fmt.Errorf("read %s: %w", coll.Name(), err)
	}
	return found, nil
}

// now has the precision of MongoDB's dates, so that an answer and a later read agree.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
