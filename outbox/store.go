package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
)

// Keys of log attributes.
const (
	keyPartition  = "partition"
	keyError      = "error"
	keyPosition   = "position"
	keyCollection = "collection"
)

// Store is the outbox in one database: a connection pool and what is remembered beside it. It is safe for
// concurrent use. Reads and writes are at majority, and reads from the primary, whatever the URL says.
type Store struct {
	// fixed after Open
	cfg         Config
	log         *slog.Logger
	client      *mongo.Client
	db          *mongo.Database
	events      *mongo.Collection
	dead        *mongo.Collection
	checkpoints *mongo.Collection
	metrics     *metrics

	// each with a lock of its own
	fetcher  *fetcher
	hours    hours
	identity identity
}

// Open connects to the MongoDB at url and checks that it can hold an outbox: it answers, is 4.4 or newer, and a
// replica set (or a sharded cluster). The errors say what to do; ErrUnreachable, ErrNotReplicaSet and ErrTooOld
// can be told apart. What can't be right whatever the server is, is reported at once.
func Open(ctx context.Context, url string, cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open outbox: %w", err)
	}
	cfg = cfg.withDefaults()
	cs, err := connstring.ParseAndValidate(url)
	if err != nil {
		return nil, fmt.Errorf("open outbox: the MongoDB URL can't be read: %w", withoutURL(err, url))
	}
	setDefault(&cfg.Database, cs.Database)
	setDefault(&cfg.Database, DefaultDatabase)

	s := &Store{cfg: cfg, log: cfg.Logger}
	if s.metrics, err = newMetrics(cfg.Metrics); err != nil {
		return nil, fmt.Errorf("open outbox: register metrics: %w", err)
	}
	if s.client, err = mongo.Connect(clientOptions(url, cs, cfg)); err != nil {
		return nil, fmt.Errorf("open outbox: %w", withoutURL(err, url))
	}
	if err := check(ctx, s.client, cs.Hosts); err != nil {
		return nil, errors.Join(err, s.client.Disconnect(context.WithoutCancel(ctx)))
	}
	s.db = s.client.Database(cfg.Database)
	s.events = s.db.Collection(cfg.Collection)
	s.dead = s.db.Collection(DeadCollection)
	s.checkpoints = s.db.Collection(CheckpointCollection)
	s.fetcher = newFetcher(s.find, cfg.CacheBytes)
	return s, nil
}

// clientOptions are the URL's, with what the promise needs on top: another member may lag behind what the primary
// confirmed, so that an event would look missing, and a place to lie in the future. A timeoutMS in the URL would end every change
// stream after that time (the driver applies it to the blocking read too), so it is not taken over.
func clientOptions(url string, cs *connstring.ConnString, cfg Config) *options.ClientOptions {
	o := options.Client().ApplyURI(url).
		SetReadPreference(readpref.Primary()).
		SetReadConcern(readconcern.Majority()).
		SetWriteConcern(writeconcern.Majority()).
		SetMonitor(monitor())
	o.Timeout = nil
	if !cs.ServerSelectionTimeoutSet {
		o.SetServerSelectionTimeout(cfg.ConnectTimeout)
	}
	if !cs.ConnectTimeoutSet {
		o.SetConnectTimeout(min(cfg.ConnectTimeout, 5*time.Second))
	}
	if !cs.HeartbeatIntervalSet {
		o.SetHeartbeatInterval(5 * time.Second) // with the connect timeout: how soon a silent server is given up
	}
	if cs.AppName == "" {
		o.SetAppName("lastmile")
	}
	return o
}

// Close ends what is under way and disconnects. Streams are closed by who opened them.
func (s *Store) Close(ctx context.Context) error {
	s.fetcher.close()
	if err := s.client.Disconnect(ctx); err != nil {
		return fmt.Errorf("close outbox: %w", err)
	}
	return nil
}

// Ping asks the primary for an answer.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.client.Ping(ctx, nil); err != nil {
		return fmt.Errorf("ping MongoDB: %w", err)
	}
	return nil
}

// Now is the server's operationTime: nothing that is committed already is later.
func (s *Store) Now(ctx context.Context) (Timestamp, error) {
	raw, err := s.db.RunCommand(ctx, bson.D{{Key: "ping", Value: 1}}).Raw()
	if err != nil {
		return Timestamp{}, fmt.Errorf("read the server's time: %w", err)
	}
	t, ok := operationTime(raw)
	if !ok {
		return Timestamp{}, fmt.Errorf("read the server's time: %w", ErrNotReplicaSet)
	}
	return t, nil
}

func operationTime(reply bson.Raw) (Timestamp, bool) {
	v, err := reply.LookupErr("operationTime")
	if err != nil {
		return Timestamp{}, false
	}
	t, i, ok := v.TimestampOK()
	return Timestamp{t, i}, ok
}

// Collection is the UUID of the collection that bears the outbox' name now; "" if there is none.
func (s *Store) Collection(ctx context.Context) (string, error) {
	specs, err := s.db.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: s.cfg.Collection}})
	if err != nil {
		return "", fmt.Errorf("read the outbox' identity: %w", err)
	}
	if len(specs) == 0 || specs[0].UUID == nil {
		return "", nil
	}
	return formatUUID(specs[0].UUID.Data), nil
}

func closeCursor(ctx context.Context, cur *mongo.Cursor) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = cur.Close(ctx) // best effort: the server drops it with its session anyway
}
