package store

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// state is all collections at one moment. It is never changed once published.
type state map[Namespace]*collection

// Config says how an [Engine] is set up.
type Config struct {
	Oplog OplogLimits
	// Now is the wall clock; nil: time.Now.
	Now func() time.Time
}

// Engine is the database: collections, oplog and write locks.
type Engine struct {
	// fixed after construction
	clock *clock
	oplog *oplog
	now   func() time.Time
	// single serialises the writes that are no part of a transaction, so that
	// only transactions make them try again.
	single chan struct{}

	current atomic.Pointer[state]

	// mu guards publishing and the locks of transactions under way.
	mu    sync.Mutex
	locks map[string]*Txn
}

// NewEngine makes an empty database. It starts nothing.
func NewEngine(cfg Config) *Engine {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	e := &Engine{
		clock:  &clock{now: cfg.Now},
		oplog:  newOplog(cfg.Oplog),
		now:    cfg.Now,
		single: make(chan struct{}, 1),
		locks:  map[string]*Txn{},
	}
	e.current.Store(&state{})
	e.appendLocked([]*Entry{{Op: OpNoop}}, nil, 0)
	return e
}

// OperationTime is the time of the latest write.
func (e *Engine) OperationTime() Timestamp { return e.clock.latest() }

// Tick writes an entry without effect: with it the time, and every stream's
// resume token, moves on also when nothing happens.
func (e *Engine) Tick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.appendLocked([]*Entry{{Op: OpNoop}}, nil, 0)
}

// ReadOplog reads up to limit entries from a number on.
func (e *Engine) ReadOplog(from uint64, limit int) Batch { return e.oplog.read(from, limit) }

// SeekOplog gives the number of the first entry at t or later. If entries were
// dropped, oldest is the time of the first that is left.
func (e *Engine) SeekOplog(t Timestamp) (number uint64, oldest Timestamp) { return e.oplog.seek(t) }

// appendLocked gives the entries their times, one for all if they are a
// transaction's, and appends them.
func (e *Engine) appendLocked(entries []*Entry, lsid bson.Raw, number int64) {
	var t Timestamp
	for i, entry := range entries {
		if i == 0 || lsid == nil {
			t = e.clock.tick()
		}
		entry.Time, entry.LSID, entry.TxnNumber = t, lsid, number
		if lsid != nil {
			entry.Index = i
		}
	}
	e.oplog.append(entries, e.now())
}

// publishLocked replaces collections by their new versions; nil removes one.
func (e *Engine) publishLocked(changed map[Namespace]*collection) {
	next := maps.Clone(*e.current.Load())
	for ns, c := range changed {
		if c == nil {
			delete(next, ns)
		} else {
			next[ns] = c
		}
	}
	e.current.Store(&next)
}

// View is a read-only snapshot.
type View struct{ state state }

// Snapshot is the database as it is now.
func (e *Engine) Snapshot() View { return View{*e.current.Load()} }

func (v View) collection(ns Namespace) *collection { return v.state[ns] }

// Source is what a query reads: a [View], or a [Txn] with its own writes.
type Source interface {
	collection(ns Namespace) *collection
}

// Write runs a write that is no part of a transaction: fn is run against the
// latest state, and again if a transaction got in its way, after that one has
// ended. What fn did before it returned an error stays.
func (e *Engine) Write(ctx context.Context, fn func(*Txn) error) error {
	for {
		holder, err := e.tryWrite(ctx, fn)
		if holder == nil {
			return err
		}
		select {
		case <-holder.done:
		case <-ctx.Done():
			return Errorf(CodeInterrupted, "operation was interrupted while it waited for a transaction")
		}
	}
}

// tryWrite gives the transaction that is in the way, if one is.
func (e *Engine) tryWrite(ctx context.Context, fn func(*Txn) error) (*Txn, error) {
	select {
	case e.single <- struct{}{}:
		defer func() { <-e.single }()
	case <-ctx.Done():
		return nil, Errorf(CodeInterrupted, "operation was interrupted")
	}
	for {
		t := e.begin(false)
		fnErr := fn(t)
		if t.blocker != nil {
			return t.blocker, nil
		}
		err := t.commit(nil, 0)
		if t.blocker != nil {
			return t.blocker, nil
		}
		if err != nil {
			continue // a transaction committed in between: the state is new
		}
		return nil, fnErr
	}
}
