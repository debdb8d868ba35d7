package embedded

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/internal/embedded/store"
)

const (
	// readAhead is how many oplog entries a stream looks at in one step.
	readAhead = 1000
	// maxEventSize is the largest event: a document's size and 16 KiB.
	maxEventSize = 16<<20 + 16<<10
	// maxTokenInError shortens the token of an event that is too large.
	maxTokenInError = 150
)

const (
	labelNonResumable = "NonResumableChangeStreamError"
	lostMessage       = "Resume of change stream was not possible, as the resume point may no longer be in the oplog."
)

// stream is a change stream of one collection: a place in the oplog, and what
// its events go through.
type stream struct {
	// fixed after construction
	engine *store.Engine
	ns     store.Namespace
	stages []streamStage
	lookup bool // fullDocument: updateLookup

	// owned by who holds the cursor
	at      uint64          // number of the next entry
	after   store.Token     // entries up to this place are not wanted
	token   store.Token     // the postBatchResumeToken
	unseen  bool            // the token to resume after was not found: the next event ends the stream
	pending *store.Entry    // its event was given, its invalidate not yet
	future  store.Timestamp // entries before this time are not wanted
}

func (s *stream) next(ctx context.Context, size int64, wait time.Duration) (feedBatch, error) {
	var deadline <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		deadline = t.C
	}
	for {
		b, changed, err := s.collect(size)
		if err != nil || len(b.docs) > 0 || b.done || wait <= 0 || size == 0 {
			return b, err
		}
		select {
		case <-changed:
		case <-deadline:
			return b, nil
		case <-ctx.Done():
			return b, store.Errorf(store.CodeInterrupted, "Error in $cursor stage :: caused by :: operation was interrupted")
		}
	}
}

// collect takes what is there now.
func (s *stream) collect(size int64) (feedBatch, <-chan struct{}, error) {
	b := feedBatch{}
	bytes := 0
	for {
		if s.pending != nil && !full(b, size, bytes) {
			return s.invalidate(b)
		}
		read := s.engine.ReadOplog(s.at, readAhead)
		if s.at < read.First {
			return b, nil, store.Errorf(store.CodeCappedPositionLost,
				"Error in $cursor stage :: caused by :: CollectionScan died due to failure to restore tailable cursor position. Last seen record id: RecordId(%d)", s.at)
		}
		if len(read.Entries) == 0 || full(b, size, bytes) {
			token := s.token
			b.token = &token
			return b, read.Changed, nil
		}
		for _, e := range read.Entries {
			doc, err := s.take(e)
			if err != nil {
				// Those before it in this batch go with it, as on a server.
				return feedBatch{}, nil, err
			}
			if doc != nil && len(b.docs) > 0 && bytes+len(doc) > maxBatchBytes {
				token := s.token
				b.token = &token
				return b, read.Changed, nil
			}
			s.advance(e, doc != nil)
			if doc != nil {
				b.docs, bytes = append(b.docs, doc), bytes+len(doc)
			}
			if s.pending != nil || full(b, size, bytes) {
				break
			}
		}
	}
}

func full(b feedBatch, size int64, bytes int) bool {
	return (size >= 0 && int64(len(b.docs)) >= size) || bytes > maxBatchBytes
}

// advance moves behind an entry. The token of an event that was given is its
// own; else it is the high-water mark of the entry's time.
func (s *stream) advance(e *store.Entry, given bool) {
	s.at++
	if given {
		s.token = e.Token()
		if e.Op == store.OpDrop || e.Op == store.OpRename {
			s.pending = e
		}
		return
	}
	if e.Time.Compare(s.token.Time) > 0 {
		s.token = store.HighWaterMark(e.Time)
	}
	if s.concerns(e) && s.wanted(e) && (e.Op == store.OpDrop || e.Op == store.OpRename) {
		s.pending = e // also when the event itself was filtered out
	}
}

func (s *stream) invalidate(b feedBatch) (feedBatch, <-chan struct{}, error) {
	token := s.pending.Token()
	token.Invalidate = true
	event, err := bson.Marshal(bson.D{
		{Key: "_id", Value: tokenDocument(token)},
		{Key: "operationType", Value: "invalidate"},
		{Key: "clusterTime", Value: timestamp(s.pending.Time)},
	})
	if err != nil {
		return b, nil, err
	}
	s.pending, s.token = nil, token
	b.docs, b.token, b.done = append(b.docs, event), &token, true
	return b, nil, nil
}

// concerns says whether an entry is about the stream's collection.
func (s *stream) concerns(e *store.Entry) bool {
	if e.NS != s.ns {
		return false
	}
	switch e.Op {
	case store.OpCreate, store.OpIndex, store.OpNoop:
		return false
	}
	return true
}

// wanted says whether an entry lies behind the place where the stream begins.
func (s *stream) wanted(e *store.Entry) bool {
	if e.Time.Compare(s.future) < 0 {
		return false
	}
	c := e.Time.Compare(s.after.Time)
	if c != 0 || !s.after.Event {
		return c >= 0
	}
	return e.Index > s.after.Index
}

// take makes the event of an entry, or nil if there is none to give.
func (s *stream) take(e *store.Entry) (bson.Raw, error) {
	if !s.concerns(e) || !s.wanted(e) {
		return nil, nil
	}
	if s.unseen {
		return nil, &store.Error{
			Code:    store.CodeChangeStreamFatal,
			Message: fmt.Sprintf("cannot resume stream; the resume token was not found. {_data: %q}", e.Token()),
			Labels:  []string{labelNonResumable},
		}
	}
	event, err := s.event(e)
	if err != nil {
		return nil, err
	}
	for _, stage := range s.stages {
		if event, err = stage(event); err != nil || event == nil {
			return nil, err
		}
	}
	if len(event) > maxEventSize {
		token := e.Token().String()
		return nil, store.Errorf(store.CodeBSONObjectTooLarge,
			"BSONObj size: %d (%#x) is invalid. Size must be between 0 and %d(16MB) First element: _id: { _data: \"%.*s...\" }",
			len(event), len(event), maxEventSize, maxTokenInError, token)
	}
	return event, nil
}

func (s *stream) event(e *store.Entry) (bson.Raw, error) {
	d := make(bson.D, 0, 8)
	if e.LSID != nil {
		d = append(d, bson.E{Key: "txnNumber", Value: e.TxnNumber}, bson.E{Key: "lsid", Value: e.LSID})
	}
	if e.Op == store.OpRename {
		d = append(d, bson.E{Key: "to", Value: namespaceDocument(e.To)})
	}
	d = append(d,
		bson.E{Key: "_id", Value: tokenDocument(e.Token())},
		bson.E{Key: "operationType", Value: e.Op},
		bson.E{Key: "clusterTime", Value: timestamp(e.Time)},
	)
	if e.Doc != nil {
		d = append(d, bson.E{Key: "fullDocument", Value: e.Doc})
	} else if e.Op == store.OpUpdate && s.lookup {
		full, err := s.current(e)
		if err != nil {
			return nil, err
		}
		d = append(d, bson.E{Key: "fullDocument", Value: full})
	}
	d = append(d, bson.E{Key: "ns", Value: namespaceDocument(e.NS)})
	if e.ID.Type != 0 {
		d = append(d, bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: e.ID}}})
	}
	if e.Op == store.OpUpdate {
		d = append(d, bson.E{Key: "updateDescription", Value: e.Desc})
	}
	return bson.Marshal(d)
}

// current looks the document up as it is now; null if it is gone.
func (s *stream) current(e *store.Entry) (any, error) {
	key, err := bson.Marshal(bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: e.ID}}}})
	if err != nil {
		return nil, err
	}
	f, err := store.CompileFilter(key)
	if err != nil {
		return nil, err
	}
	docs, err := store.Find(s.engine.Snapshot(), s.ns, store.Query{Filter: f, Limit: 1})
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	return docs[0], nil
}

func namespaceDocument(ns store.Namespace) bson.D {
	return bson.D{{Key: "db", Value: ns.DB}, {Key: "coll", Value: ns.Coll}}
}
