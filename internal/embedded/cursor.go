package embedded

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/internal/embedded/store"
)

const (
	firstBatchSize = 101
	// maxBatchBytes keeps a reply below the size of a document.
	maxBatchBytes = 16 << 20
	cursorTimeout = 10 * time.Minute
	// defaultAwait is how long a getMore on a stream waits if it doesn't say.
	defaultAwait = time.Second
)

var cursorCommands = map[string]spec{
	"getMore":     {run: getMore, txn: true, fields: []string{"collection", "batchSize", "term", "lastKnownCommittedOpTime"}},
	"killCursors": {run: killCursors, txn: true, fields: []string{"cursors"}},
}

// source of a cursor: a list of documents, or a change stream.
type feed interface {
	// next gives the next batch; done says that nothing comes after it. A
	// stream waits until wait is over.
	next(ctx context.Context, size int64, wait time.Duration) (b feedBatch, err error)
}

type feedBatch struct {
	docs []bson.Raw
	done bool
	// token is the postBatchResumeToken; nil where the feed is no stream.
	token *store.Token
}

// cursor is an open one.
type cursor struct {
	id     int64
	ns     store.Namespace
	feed   feed
	busy   chan struct{}
	killed chan struct{}

	// guarded by cursors.mu
	used   time.Time
	active bool
}

type cursors struct {
	mu   sync.Mutex
	byID map[int64]*cursor
}

func newCursors() *cursors { return &cursors{byID: map[int64]*cursor{}} }

func (c *cursors) open(ns store.Namespace, f feed) *cursor {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := &cursor{ns: ns, feed: f, busy: make(chan struct{}, 1), killed: make(chan struct{}), used: time.Now()}
	for x.id == 0 || c.byID[x.id] != nil {
		x.id = rand.Int64()
	}
	c.byID[x.id] = x
	return x
}

func (c *cursors) get(id int64) *cursor {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.byID[id]
	if x != nil {
		x.active = true
	}
	return x
}

func (c *cursors) release(x *cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x.used, x.active = time.Now(), false
}

// kill closes a cursor, also under a getMore that waits on it.
func (c *cursors) kill(id int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.byID[id]
	if x == nil {
		return false
	}
	delete(c.byID, id)
	close(x.killed)
	return true
}

func (c *cursors) sweep(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, x := range c.byID {
		if !x.active && now.Sub(x.used) > cursorTimeout {
			delete(c.byID, id)
			close(x.killed)
		}
	}
}

// documents is a feed of what a query found.
type documents struct {
	docs       []bson.Raw
	projection *store.Projection
}

func (d *documents) next(_ context.Context, size int64, _ time.Duration) (feedBatch, error) {
	var b feedBatch
	bytes := 0
	for len(d.docs) > 0 && (size < 0 || int64(len(b.docs)) < size) {
		doc, err := d.projection.Apply(d.docs[0])
		if err != nil {
			return b, err
		}
		if bytes += len(doc); len(b.docs) > 0 && bytes > maxBatchBytes {
			break
		}
		b.docs, d.docs = append(b.docs, doc), d.docs[1:]
	}
	b.done = len(d.docs) == 0
	return b, nil
}

// openCursor gives the first batch, and keeps the cursor if there is more.
func (r *request) openCursor(ns store.Namespace, f feed, size int64, single bool) (bson.D, error) {
	if size < 0 {
		return nil, store.Errorf(store.CodeBadValue, "BatchSize value must be non-negative, but received: %d", size)
	}
	b, err := f.next(context.Background(), size, 0)
	if err != nil {
		return nil, err
	}
	id := int64(0)
	if !b.done && !single {
		id = r.server.cursors.open(ns, f).id
	}
	return cursorReply("firstBatch", id, ns.String(), b), nil
}

func cursorReply(name string, id int64, ns string, b feedBatch) bson.D {
	if b.docs == nil {
		b.docs = []bson.Raw{}
	}
	d := bson.D{{Key: name, Value: b.docs}}
	if b.token != nil {
		d = append(d, bson.E{Key: "postBatchResumeToken", Value: tokenDocument(*b.token)})
	}
	d = append(d, bson.E{Key: "id", Value: id}, bson.E{Key: "ns", Value: ns})
	return bson.D{{Key: "cursor", Value: d}}
}

func tokenDocument(t store.Token) bson.D { return bson.D{{Key: "_data", Value: t.String()}} }

func getMore(ctx context.Context, r *request) (bson.D, error) {
	id, ok := r.body.Lookup("getMore").Int64OK()
	if !ok {
		return nil, store.Errorf(store.CodeTypeMismatch, "Field 'getMore' must be of type long")
	}
	coll, _ := r.body.Lookup("collection").StringValueOK()
	x := r.server.cursors.get(id)
	if x == nil {
		return nil, cursorNotFound(id)
	}
	defer r.server.cursors.release(x)
	if asked := (store.Namespace{DB: r.db, Coll: coll}); asked != x.ns {
		return nil, store.Errorf(13, "Requested getMore on namespace '%s', but cursor belongs to a different namespace %s", asked, x.ns)
	}
	size, err := integer(r.body, "batchSize", -1)
	if err != nil {
		return nil, err
	}
	ms, err := integer(r.body, "maxTimeMS", defaultAwait.Milliseconds())
	if err != nil {
		return nil, err
	}
	if size == 0 {
		size = -1
	}
	b, err := r.advance(ctx, x, size, time.Duration(ms)*time.Millisecond)
	if err != nil {
		return nil, err
	}
	if b.done {
		r.server.cursors.kill(id)
		id = 0
	}
	return cursorReply("nextBatch", id, x.ns.String(), b), nil
}

// advance takes the next batch, unless the cursor is killed meanwhile. An error
// ends the cursor.
func (r *request) advance(ctx context.Context, x *cursor, size int64, wait time.Duration) (feedBatch, error) {
	select {
	case x.busy <- struct{}{}:
		defer func() { <-x.busy }()
	default:
		return feedBatch{}, store.Errorf(12051, "cursor id %d is already in use", x.id)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer close(stop)
	defer cancel(nil)
	watcher.Go(func() {
		select {
		case <-x.killed:
			cancel(errCursorKilled)
		case <-stop:
		}
	})
	b, err := x.feed.next(ctx, size, wait)
	if errors.Is(context.Cause(ctx), errCursorKilled) {
		return b, errCursorKilled
	}
	if err != nil {
		r.server.cursors.kill(x.id)
	}
	return b, err
}

// errCursorKilled is what a waiting getMore gets when killCursors comes.
var errCursorKilled = store.Errorf(store.CodeCursorKilled, "Error in $cursor stage :: caused by :: operation was interrupted")

func cursorNotFound(id int64) error {
	return store.Errorf(store.CodeCursorNotFound, "cursor id %d not found", id)
}

func killCursors(_ context.Context, r *request) (bson.D, error) {
	ids, ok := r.body.Lookup("cursors").ArrayOK()
	if !ok {
		return nil, store.Errorf(store.CodeFailedToParse, "Field 'cursors' must be of type array in: killCursors")
	}
	values, err := ids.Values()
	if err != nil {
		return nil, store.Errorf(store.CodeFailedToParse, "decode cursors: %s", err)
	}
	killed, missing := []int64{}, []int64{}
	for _, v := range values {
		id, ok := v.Int64OK()
		switch {
		case !ok:
			return nil, store.Errorf(store.CodeFailedToParse, "Field 'cursors' contains an element that is not of type long")
		case r.server.cursors.kill(id):
			killed = append(killed, id)
		default:
			missing = append(missing, id)
		}
	}
	return bson.D{
		{Key: "cursorsKilled", Value: killed},
		{Key: "cursorsNotFound", Value: missing},
		{Key: "cursorsAlive", Value: bson.A{}},
		{Key: "cursorsUnknown", Value: bson.A{}},
	}, nil
}
