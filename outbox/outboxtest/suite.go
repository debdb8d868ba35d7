package outboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// Run tests an outbox on the servers of newMongo, which answers the URL of an empty database of its own each time.
func Run(t *testing.T, newMongo func(t *testing.T) (url string)) {
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"Publish", publishTests},
		{"Watch", watchTests},
		{"Ends", endTests},
		{"Documents", documentTests},
		{"Scan", scanTests},
		{"Fetch", fetchTests},
		{"Checkpoint", checkpointTests},
	} {
		for _, test := range group.tests {
			t.Run(group.name+"/"+test.name, func(t *testing.T) {
				t.Parallel()
				test.run(Setup(t, newMongo(t), outbox.Config{}))
			})
		}
	}
}

type test struct {
	name string
	run  func(*Bundle)
}

// AwaitTime is the stores' in this package: short, so that an idle Next comes back soon.
const AwaitTime = 100 * time.Millisecond

// Bundle is an outbox with a database of its own, and a plain client beside it.
type Bundle struct {
	*testing.T
	Store  *outbox.Store
	URL    string
	Ctx    context.Context
	Client *mongo.Client
	DB     *mongo.Database
	Events *mongo.Collection
}

// Setup opens and prepares an outbox, until the test is over.
func Setup(t *testing.T, url string, cfg outbox.Config) *Bundle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	if cfg.AwaitTime == 0 {
		cfg.AwaitTime = AwaitTime
	}
	store, err := outbox.Open(ctx, url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, store.Close) })
	if err := store.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, client.Disconnect) })
	cs, err := connstring.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	db := client.Database(cs.Database)
	return &Bundle{T: t, Store: store, URL: url, Ctx: ctx, Client: client, DB: db, Events: db.Collection(outbox.DefaultCollection)}
}

func closeAll(t *testing.T, end func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := end(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// Event makes an event for users; n goes into its data.
func Event(n int, to ...protocol.UserID) *protocol.Event {
	if len(to) == 0 {
		to = []protocol.UserID{"alice"}
	}
	return &protocol.Event{
		ID: protocol.NewEventID(), To: to, Type: "test.event",
		Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)),
	}
}

// Publish inserts n events one after another and answers their ids.
func (b *Bundle) Publish(n int) []protocol.EventID {
	b.Helper()
	ids := make([]protocol.EventID, n)
	for i := range ids {
		e := Event(i)
		ids[i] = e.ID
		b.Must(b.Store.Publish(b.Ctx, e))
	}
	return ids
}

// Must ends the test on an error.
func (b *Bundle) Must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// Watch opens a stream until the test is over.
func (b *Bundle) Watch(o outbox.WatchOptions) *outbox.Stream {
	b.Helper()
	st, err := b.Store.Watch(b.Ctx, o)
	b.Must(err)
	b.Cleanup(func() { closeAll(b.T, st.Close) })
	return st
}

// Read reads n changes, each an event.
func (b *Bundle) Read(st *outbox.Stream, n int) []outbox.Change {
	b.Helper()
	return b.read(st, n, 20*time.Second)
}

func (b *Bundle) read(st *outbox.Stream, n int, within time.Duration) []outbox.Change {
	b.Helper()
	var all []outbox.Change
	for end := time.Now().Add(within); len(all) < n; {
		changes, err := st.Next(b.Ctx)
		b.Must(err)
		all = append(all, changes...)
		if time.Now().After(end) {
			b.Fatalf("%d changes within %s, wanted %d; trouble: %v", len(all), within, n, st.Trouble())
		}
	}
	if len(all) != n {
		b.Fatalf("%d changes, wanted %d", len(all), n)
	}
	return all
}

// Quiet checks that the stream has nothing more to say.
func (b *Bundle) Quiet(st *outbox.Stream) {
	b.Helper()
	for range 2 {
		changes, err := st.Next(b.Ctx)
		b.Must(err)
		if len(changes) > 0 {
			b.Fatalf("%d changes too many: %s …", len(changes), describe(changes[0]))
		}
	}
}

// IDs are those of changes, in order; the zero id stands for what is no event.
func IDs(changes []outbox.Change) []protocol.EventID {
	ids := make([]protocol.EventID, len(changes))
	for i, c := range changes {
		if c.Event != nil {
			ids[i] = c.Event.ID
		}
	}
	return ids
}

func describe(c outbox.Change) string {
	if c.Event == nil {
		return fmt.Sprint(c.Fault)
	}
	return c.Event.ID.String()
}

// transact runs do in a transaction of the plain client.
func (b *Bundle) transact(do func(context.Context) error) error {
	session, err := b.Client.StartSession()
	b.Must(err)
	defer session.EndSession(b.Ctx)
	_, err = session.WithTransaction(b.Ctx, func(ctx context.Context) (any, error) { return nil, do(ctx) })
	return err
}

func (b *Bundle) count(coll *mongo.Collection, filter any) int {
	b.Helper()
	n, err := coll.CountDocuments(b.Ctx, filter)
	b.Must(err)
	return int(n)
}

func (b *Bundle) wantError(err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Fatalf("got error %v, wanted %v", err, want)
	}
}

var all = bson.D{}
