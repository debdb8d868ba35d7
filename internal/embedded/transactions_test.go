package embedded_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
)

// txnClient sends the statements of one session.
type txnClient struct {
	*rawClient
	id     bson.Binary
	number int64
	begun  bool
}

func newTxnClient(t *testing.T, server *embedded.Mongo, session byte) *txnClient {
	return &txnClient{rawClient: dialRaw(t, server), id: bson.Binary{Subtype: 4, Data: append(make([]byte, 15), session)}}
}

func (c *txnClient) begin() { c.number, c.begun = c.number+1, true }

func (c *txnClient) statement(command string) bson.Raw {
	d := append(commandJSON(c.t, command),
		bson.E{Key: "lsid", Value: bson.D{{Key: "id", Value: c.id}}},
		bson.E{Key: "txnNumber", Value: c.number}, bson.E{Key: "autocommit", Value: false})
	if c.begun {
		d = append(d, bson.E{Key: "startTransaction", Value: true})
		c.begun = false
	}
	return c.run(d)
}

func wantOK(t *testing.T, reply bson.Raw) {
	t.Helper()
	if reply.Lookup("ok").AsFloat64() != 1 || reply.Lookup("writeErrors").Type != 0 {
		t.Fatalf("got %s", reply)
	}
}

func wantCode(t *testing.T, reply bson.Raw, code int64, label string) {
	t.Helper()
	got, _ := reply.Lookup("code").AsInt64OK()
	first, _ := reply.Lookup("errorLabels", "0").StringValueOK()
	if got != code || first != label {
		t.Fatalf("want code %d and label %q, got %s", code, label, reply)
	}
}

const transientLabel = "TransientTransactionError"

func TestTransaction_ADocumentWrittenSinceTheSnapshotConflicts(t *testing.T) {
	t.Parallel()
	server := startMongo(t, embedded.MongoConfig{})
	plain, txn := dialRaw(t, server), newTxnClient(t, server, 1)
	plain.must(`{"insert": "t", "documents": [{"_id": "x", "n": 0}]}`)
	txn.begin()
	wantOK(t, txn.statement(`{"find": "t"}`))
	plain.must(`{"update": "t", "updates": [{"q": {"_id": "x"}, "u": {"$inc": {"n": 1}}}]}`)
	wantCode(t, txn.statement(`{"update": "t", "updates": [{"q": {"_id": "x"}, "u": {"$inc": {"n": 1}}}]}`), 112, transientLabel)
	wantCode(t, txn.statement(`{"commitTransaction": 1}`), 251, transientLabel)
}

func TestTransaction_OtherDocumentsDoNotConflict(t *testing.T) {
	t.Parallel()
	server := startMongo(t, embedded.MongoConfig{})
	a, b, plain := newTxnClient(t, server, 1), newTxnClient(t, server, 2), dialRaw(t, server)
	plain.must(`{"create": "t"}`)
	a.begin()
	b.begin()
	wantOK(t, a.statement(`{"insert": "t", "documents": [{"_id": "a"}]}`))
	wantOK(t, b.statement(`{"insert": "t", "documents": [{"_id": "b"}]}`))
	plain.must(`{"insert": "t", "documents": [{"_id": "c"}]}`)
	wantOK(t, b.statement(`{"commitTransaction": 1}`))
	wantOK(t, a.statement(`{"commitTransaction": 1}`))
	if n := plain.must(`{"count": "t"}`).Lookup("n").AsInt64(); n != 3 {
		t.Fatalf("%d documents, want 3", n)
	}
}

func TestTransaction_ASingleWriteWaitsForIt(t *testing.T) {
	t.Parallel()
	server := startMongo(t, embedded.MongoConfig{})
	txn, plain := newTxnClient(t, server, 1), dialRaw(t, server)
	plain.must(`{"insert": "t", "documents": [{"_id": "x", "n": 0}]}`)
	txn.begin()
	wantOK(t, txn.statement(`{"update": "t", "updates": [{"q": {"_id": "x"}, "u": {"$set": {"n": 5}}}]}`))
	other := dialRaw(t, server)
	other.send(commandJSON(t, `{"update": "t", "updates": [{"q": {"_id": "x"}, "u": {"$inc": {"n": 1}}}]}`))
	// One that may wait 20 ms only gives up, so the first one still waits.
	limited := plain.run(commandJSON(t, `{"update": "t", "updates": [{"q": {"_id": "x"}, "u": {"$inc": {"n": 100}}}], "maxTimeMS": 20}`))
	wantCode(t, limited, 11601, "")
	wantOK(t, txn.statement(`{"commitTransaction": 1}`))
	wantOK(t, other.receive())
	got := plain.must(`{"find": "t"}`).Lookup("cursor", "firstBatch", "0", "n").AsInt64()
	if got != 6 {
		t.Fatalf("n is %d, want 6", got)
	}
}

func TestTransaction_OneThatIsLeftBehindIsAborted(t *testing.T) {
	t.Parallel()
	server := startMongo(t, embedded.MongoConfig{TransactionLifetime: 50 * time.Millisecond, Sweep: 10 * time.Millisecond})
	txn, plain := newTxnClient(t, server, 1), dialRaw(t, server)
	plain.must(`{"create": "t"}`)
	txn.begin()
	wantOK(t, txn.statement(`{"insert": "t", "documents": [{"_id": "x"}]}`))
	_ = txn.conn.Close()
	plain.must(`{"insert": "t", "documents": [{"_id": "x"}]}`) // waits until it is aborted
	again := &txnClient{rawClient: dialRaw(t, server), id: txn.id, number: txn.number}
	wantCode(t, again.statement(`{"commitTransaction": 1}`), 251, transientLabel)
}

func TestTransaction_EndSessionsAbortsIt(t *testing.T) {
	t.Parallel()
	server := startMongo(t, embedded.MongoConfig{})
	txn, plain := newTxnClient(t, server, 1), dialRaw(t, server)
	plain.must(`{"create": "t"}`)
	txn.begin()
	wantOK(t, txn.statement(`{"insert": "t", "documents": [{"_id": "x"}]}`))
	wantOK(t, plain.run(bson.D{{Key: "endSessions", Value: bson.A{bson.D{{Key: "id", Value: txn.id}}}}, {Key: "$db", Value: "admin"}}))
	plain.must(`{"insert": "t", "documents": [{"_id": "x"}]}`)
}

// Twenty clients move money between ten accounts; each move also leaves an event.
// Nothing is lost or made, and every committed move has its one event.
func TestTransaction_TwentyClients(t *testing.T) {
	t.Parallel()
	s := setupMongo(t, embedded.MongoConfig{})
	accounts, outbox := s.db.Collection("accounts"), s.db.Collection("outbox")
	for i := range 10 {
		if _, err := accounts.InsertOne(s.ctx, bson.D{{Key: "_id", Value: i}, {Key: "n", Value: 100}}); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := outbox.Watch(s.ctx, mongo.Pipeline{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close(s.ctx) }()
	const clients, moves = 20, 5
	var g errgroup.Group
	for c := range clients {
		client := connect(t, s.ctx, s.server)
		g.Go(func() error {
			for m := range moves {
				if err := move(s.ctx, client, c%10, (c+m+1)%10, fmt.Sprintf("%d-%d", c, m)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for range clients * moves {
		if !stream.Next(s.ctx) {
			t.Fatalf("stream ended after %d events: %v", len(seen), stream.Err())
		}
		seen[stream.Current.Lookup("documentKey", "_id").StringValue()]++
	}
	if len(seen) != clients*moves {
		t.Errorf("%d different events, want %d", len(seen), clients*moves)
	}
	var sum struct{ N int }
	cur, err := accounts.Aggregate(s.ctx, bson.A{bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: nil}, {Key: "n", Value: bson.D{{Key: "$sum", Value: "$n"}}}}}}})
	if err != nil || !cur.Next(s.ctx) || cur.Decode(&sum) != nil || sum.N != 1000 {
		t.Errorf("the accounts hold %d, want 1000 (%v)", sum.N, err)
	}
	_ = cur.Close(s.ctx)
}

func move(ctx context.Context, client *mongo.Client, from, to int, event string) error {
	session, err := client.StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	db := client.Database("facts")
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		for id, by := range map[int]int{from: -1, to: 1} {
			if from == to {
				by = 0
			}
			_, err := db.Collection("accounts").UpdateOne(ctx, bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: by}}}})
			if err != nil {
				return nil, err
			}
		}
		return db.Collection("outbox").InsertOne(ctx, bson.D{{Key: "_id", Value: event}})
	})
	return err
}

// The events of one transaction come together, in its order, with one time.
func TestTransaction_EventsStayTogether(t *testing.T) {
	t.Parallel()
	s := setupMongo(t, embedded.MongoConfig{})
	c := s.db.Collection("c")
	stream, err := c.Watch(s.ctx, mongo.Pipeline{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close(s.ctx) }()
	var g sync.WaitGroup
	for n := range 8 {
		g.Go(func() {
			err := s.client.UseSession(s.ctx, func(ctx context.Context) error {
				_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
					for i := range 5 {
						if _, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: fmt.Sprintf("%d-%d", n, i)}}); err != nil {
							return nil, err
						}
					}
					return nil, nil
				})
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait()
	last := ""
	for range 8 {
		var owner string
		var at bson.Timestamp
		for i := range 5 {
			if !stream.Next(s.ctx) {
				t.Fatal(stream.Err())
			}
			var e struct {
				ID struct {
					Data string `bson:"_data"`
				} `bson:"_id"`
				ClusterTime bson.Timestamp
				DocumentKey struct {
					ID string `bson:"_id"`
				}
			}
			if err := stream.Decode(&e); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				owner, at = e.DocumentKey.ID[:1], e.ClusterTime
			}
			if want := fmt.Sprintf("%s-%d", owner, i); e.DocumentKey.ID != want || e.ClusterTime != at {
				t.Fatalf("got %s at %v, want %s at %v", e.DocumentKey.ID, e.ClusterTime, want, at)
			}
			if e.ID.Data <= last {
				t.Fatalf("token %s is not above %s", e.ID.Data, last)
			}
			last = e.ID.Data
		}
	}
}
