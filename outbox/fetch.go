package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// maxQueryIDs bounds one query of Fetch.
const maxQueryIDs = 1000

// Fetch answers the envelopes of ids, as they are committed at majority. What is missing in the answer is not in the
// outbox, or is no event. Recent ones come from memory; calls that come while a query is under way are gathered
// into the next. The envelopes are shared: nobody changes them.
func (s *Store) Fetch(ctx context.Context, ids ...protocol.EventID) (map[protocol.EventID]*protocol.Envelope, error) {
	found := make(map[protocol.EventID]*protocol.Envelope, len(ids))
	rest := s.fetcher.cache.take(ids, found)
	s.metrics.fetched.WithLabelValues("cache").Add(float64(len(ids) - len(rest)))
	if len(rest) == 0 {
		return found, nil
	}
	s.metrics.fetched.WithLabelValues("outbox").Add(float64(len(rest)))
	b, err := s.fetcher.wait(ctx, rest)
	if err != nil {
		return nil, fmt.Errorf("fetch events: %w", err)
	}
	for _, id := range rest {
		if v, ok := b.found[id]; ok {
			found[id] = v
		}
	}
	return found, nil
}

// Remember keeps an envelope that passes by for the Fetch that is likely to come. What it points to is copied.
func (s *Store) Remember(v *protocol.Envelope) {
	if v == nil || v.ID.IsZero() || s.fetcher.cache.has(v.ID) {
		return
	}
	s.fetcher.cache.add(v.Clone())
}

// Get answers one event; ErrNotFound, or the *protocol.ValidationError of a document that is none.
func (s *Store) Get(ctx context.Context, id protocol.EventID) (*protocol.Event, error) {
	raw, err := s.events.FindOne(ctx, bson.D{{Key: "_id", Value: id.String()}}).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, fmt.Errorf("get event %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("get event %s: %w", id, err)
	}
	e, fault := decode(raw)
	if fault != nil {
		return nil, fmt.Errorf("get event %s: %w", id, fault)
	}
	return e, nil
}

// find queries for ids, and leaves out the recipients, which can be most of a document and nobody needs here.
func (s *Store) find(ctx context.Context, ids []protocol.EventID) (map[protocol.EventID]*protocol.Envelope, error) {
	found := make(map[protocol.EventID]*protocol.Envelope, len(ids))
	for chunk := range slices.Chunk(ids, maxQueryIDs) {
		in := make(bson.A, len(chunk))
		for i, id := range chunk {
			in[i] = id.String()
		}
		s.metrics.queries.Inc()
		cur, err := s.events.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: in}}}},
			options.Find().SetProjection(bson.D{{Key: "to", Value: 0}}))
		if err != nil {
			return nil, err
		}
		for cur.Next(ctx) {
			if v := envelope(cur.Current); v != nil {
				found[v.ID] = v
			}
		}
		err = cur.Err()
		closeCursor(ctx, cur)
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

func envelope(doc bson.Raw) *protocol.Envelope {
	e, fault := decodeContent(doc)
	if fault != nil {
		return nil
	}
	v, err := protocol.NewEnvelope(e)
	if err != nil {
		return nil
	}
	return v
}

// fetcher gathers: one query is under way at a time, and who comes meanwhile waits for the next, which asks for
// everybody's ids at once. A caller that gives up does not take the query from the others.
type fetcher struct {
	cache *cache
	query func(context.Context, []protocol.EventID) (map[protocol.EventID]*protocol.Envelope, error)

	ctx    context.Context // of the queries: ends with close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	next *gathered // guarded by mu; nil: nobody waits
	busy bool      // guarded by mu
}

// gathered is one query and all who wait for it.
type gathered struct {
	ids  map[protocol.EventID]struct{} // until the query starts: guarded by the fetcher's mu
	done chan struct{}

	found map[protocol.EventID]*protocol.Envelope // after done
	err   error                                   // after done
}

func newFetcher(query func(context.Context, []protocol.EventID) (map[protocol.EventID]*protocol.Envelope, error),
	cacheBytes int) *fetcher {
	f := &fetcher{cache: newCache(cacheBytes), query: query}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

func (f *fetcher) close() {
	f.cancel()
	f.wg.Wait()
}

func (f *fetcher) wait(ctx context.Context, ids []protocol.EventID) (*gathered, error) {
	g := f.join(ids)
	select {
	case <-g.done:
		return g, g.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// join adds ids to the next query, and starts it if none is under way.
func (f *fetcher) join(ids []protocol.EventID) *gathered {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil {
		f.next = &gathered{ids: make(map[protocol.EventID]struct{}, len(ids)), done: make(chan struct{})}
	}
	for _, id := range ids {
		f.next.ids[id] = struct{}{}
	}
	g := f.next
	if !f.busy {
		f.busy = true
		f.wg.Go(f.run)
	}
	return g
}

// run queries until nobody waits.
func (f *fetcher) run() {
	for {
		f.mu.Lock()
		g := f.next
		f.next = nil
		if g == nil {
			f.busy = false
		}
		f.mu.Unlock()
		if g == nil {
			return
		}
		f.serve(g)
	}
}

func (f *fetcher) serve(g *gathered) {
	defer close(g.done)
	ids := make([]protocol.EventID, 0, len(g.ids))
	for id := range g.ids {
		ids = append(ids, id)
	}
	g.found, g.err = f.query(f.ctx, ids)
	for _, v := range g.found {
		f.cache.add(v)
	}
}
