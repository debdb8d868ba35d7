package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Prepare makes the collections and indexes where they are missing. It may run any number of times, and in
// several processes at once. Collections are made beforehand since
// an outbox without one has no identity yet.
func (s *Store) Prepare(ctx context.Context) error {
	have, err := s.db.ListCollectionNames(ctx, bson.D{})
	if err != nil {
		return fmt.Errorf("prepare outbox: list collections: %w", err)
	}
	for _, name := range []string{s.cfg.Collection, DeadCollection, CheckpointCollection} {
		if slices.Contains(have, name) {
			continue
		}
		if err := s.db.CreateCollection(ctx, name); err != nil && !hasCode(err, codeNamespaceExists) {
			return fmt.Errorf("prepare outbox: create collection %s: %w", name, err)
		}
	}
	// What the scan and the retention go by.
	byTime := bson.D{{Key: "time", Value: 1}, {Key: "_id", Value: 1}}
	if err := index(ctx, s.events, byTime, nil); err != nil {
		return err
	}
	ttl := int32(DeadRetention / time.Second)
	return index(ctx, s.dead, bson.D{{Key: "at", Value: 1}}, &ttl)
}

func index(ctx context.Context, coll *mongo.Collection, keys bson.D, ttl *int32) error {
	opts := options.Index()
	if ttl != nil {
		opts.SetExpireAfterSeconds(*ttl)
	}
	_, err := coll.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys, Options: opts})
	if err != nil {
		return fmt.Errorf("prepare outbox: create index on %s: %w", coll.Name(), err)
	}
	return nil
}

func hasCode(err error, code int) bool {
	var srv mongo.ServerError
	return errors.As(err, &srv) && srv.HasErrorCode(code)
}
