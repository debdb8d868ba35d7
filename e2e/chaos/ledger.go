package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
)

// event is one that a publisher has begun to publish.
type event struct {
	// fixed after construction
	n         int // its place in the ledger
	id        string
	to        []string
	ephemeral bool
	quiet     bool // notify: false
	expires   bool
	sent      time.Time // when its first POST began

	// guarded by the ledger's mu
	confirmed time.Time // when a POST was answered 202; zero: not yet
	committed time.Time // when the change stream showed it; zero: not yet
	order     int       // its place in commit order, from 1; 0: not committed
}

// strict says whether its every recipient must see it or be notified.
func (e *event) strict() bool { return !e.ephemeral && !e.expires }

// ledger knows every event from before its first POST.
type ledger struct {
	// fixed after construction
	t      testing.TB
	outbox *mongo.Collection
	loads  chan chan loaded

	mu        sync.Mutex
	events    []*event
	byID      map[string]*event
	byUser    map[string][]*event
	commits   int
	following error // why the change stream ended
}

func newLedger(t testing.TB, mongoURL string) *ledger {
	parsed, err := connstring.ParseAndValidate(mongoURL)
	if err != nil {
		t.Fatalf("mongo url: %v", err)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(mongoURL))
	if err != nil {
		t.Fatalf("connect to mongo: %v", err)
	}
	t.Cleanup(func() {
		limited, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = client.Disconnect(limited)
	})
	l := &ledger{t: t, loads: make(chan chan loaded), byID: map[string]*event{}, byUser: map[string][]*event{}}
	l.outbox = client.Database(parsed.Database).Collection("outbox", options.Collection().SetReadConcern(readconcern.Majority()))
	return l
}

// follow opens the change stream, before anything is published, and serves page loads.
func (l *ledger) follow() {
	ctx, cancel := context.WithCancel(l.t.Context())
	stream, err := l.outbox.Watch(ctx, mongo.Pipeline{})
	if err != nil {
		cancel()
		l.t.Fatalf("watch the outbox: %v", err)
	}
	var working sync.WaitGroup
	working.Go(func() { l.read(ctx, stream) })
	working.Go(func() { l.serve(ctx) })
	l.t.Cleanup(func() { cancel(); working.Wait() })
}

func (l *ledger) read(ctx context.Context, stream *mongo.ChangeStream) {
	defer stream.Close(context.WithoutCancel(ctx))
	for stream.Next(ctx) {
		var change struct {
			Kind string `bson:"operationType"`
			Key  struct {
				ID string `bson:"_id"`
			} `bson:"documentKey"`
		}
		if err := stream.Decode(&change); err != nil {
			l.broken(err)
			return
		}
		if change.Kind == "insert" {
			l.commit(change.Key.ID, time.Now())
		}
	}
	if ctx.Err() == nil {
		l.broken(errors.Join(errors.New("the change stream ended"), stream.Err()))
	}
}

func (l *ledger) broken(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.following = fmt.Errorf("follow the outbox: %w", err)
}

// err is why the ledger knows no longer what is committed.
func (l *ledger) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.following
}

func (l *ledger) commit(id string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.byID[id]; e != nil && e.order == 0 { // else a probe of a relay
		l.commits++
		e.order, e.committed = l.commits, at
	}
}

// begin enters events that are about to be published.
func (l *ledger) begin(events ...*event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		e.n, e.sent = len(l.events), time.Now()
		l.events = append(l.events, e)
		l.byID[e.id] = e
		for _, user := range e.to {
			l.byUser[user] = append(l.byUser[user], e)
		}
	}
}

func (l *ledger) confirm(events ...*event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		e.confirmed = time.Now()
	}
}

// find looks an event up by its id; nil: nobody published it.
func (l *ledger) find(id string) *event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byID[id]
}

// of are the committed events for a user, as they are now.
func (l *ledger) of(user string) []event {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []event
	for _, e := range l.byUser[user] {
		if e.order > 0 {
			out = append(out, *e)
		}
	}
	return out
}

// all are the events as they are now.
func (l *ledger) all() []event {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]event, len(l.events))
	for i, e := range l.events {
		out[i] = *e
	}
	return out
}

// loaded is what a page gets: all that is committed when it asks, or a bit more.
type loaded struct {
	events bits
	err    error
}

// load is what an application does that loads its page.
func (l *ledger) load(ctx context.Context) (bits, error) {
	answer := make(chan loaded, 1)
	select {
	case l.loads <- answer:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case got := <-answer:
		return got.events, got.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve answers all who asked before a read began by that one read.
func (l *ledger) serve(ctx context.Context) {
	for {
		var waiting []chan loaded
		select {
		case one := <-l.loads:
			waiting = append(waiting, one)
		case <-ctx.Done():
			return
		}
		for gathering := true; gathering; {
			select {
			case one := <-l.loads:
				waiting = append(waiting, one)
			default:
				gathering = false
			}
		}
		got, err := l.readAll(ctx)
		for _, one := range waiting {
			one <- loaded{events: got, err: err}
		}
	}
}

func (l *ledger) readAll(ctx context.Context) (bits, error) {
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found, err := l.outbox.Find(limited, bson.D{}, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetBatchSize(10_000))
	if err != nil {
		return nil, fmt.Errorf("load page: %w", err)
	}
	var rows []struct {
		ID string `bson:"_id"`
	}
	if err := found.All(limited, &rows); err != nil {
		return nil, fmt.Errorf("load page: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var out bits
	for _, row := range rows {
		if e := l.byID[strings.ToLower(row.ID)]; e != nil {
			out.set(e.n)
		}
	}
	return out, nil
}

// bits is a set of events by their place in the ledger.
type bits []uint64

func (b *bits) set(n int) {
	for len(*b) <= n/64 {
		*b = append(*b, 0)
	}
	(*b)[n/64] |= 1 << (n % 64)
}

func (b bits) has(n int) bool { return n/64 < len(b) && b[n/64]&(1<<(n%64)) != 0 }

// add is the union; o stays as it is.
func (b *bits) add(o bits) {
	for len(*b) < len(o) {
		*b = append(*b, 0)
	}
	for i := range o {
		(*b)[i] |= o[i]
	}
}
