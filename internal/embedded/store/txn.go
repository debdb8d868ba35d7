package store

import "go.mongodb.org/mongo-driver/v2/bson"

// Txn is a transaction: a snapshot, its own copies of the collections that it
// writes, and the changes in order. It is used by one goroutine at a time; only
// Abort may come from another.
//
// A transaction of a session locks each key that it writes, until it ends: who
// comes second gets a write conflict. A single write locks nothing; it looks
// whether one of its keys is locked, and is run again when that lock is gone.
type Txn struct {
	engine  *Engine
	base    state
	own     map[Namespace]*collection
	changes []change
	session bool
	blocker *Txn // of a single write: the transaction that it waits for
	done    chan struct{}

	// guarded by engine.mu
	locks []string
	ended bool
}

// change is one document's change: of old to new, either of them nil.
type change struct {
	ns       Namespace
	old, new *record
	entry    *Entry
}

// Begin starts a transaction of a session, with the state of now.
func (e *Engine) Begin() *Txn { return e.begin(true) }

func (e *Engine) begin(session bool) *Txn {
	return &Txn{
		engine: e, base: *e.current.Load(), own: map[Namespace]*collection{},
		session: session, done: make(chan struct{}),
	}
}

func (t *Txn) collection(ns Namespace) *collection {
	if c, ok := t.own[ns]; ok {
		return c
	}
	return t.base[ns]
}

// writable gives the transaction's own copy of a collection, and makes the
// collection if it isn't there.
func (t *Txn) writable(ns Namespace) *collection {
	if c, ok := t.own[ns]; ok {
		return c
	}
	var c *collection
	if base := t.base[ns]; base != nil {
		t.engine.mu.Lock()
		c = base.clone()
		t.engine.mu.Unlock()
	} else {
		c = newCollection(ns)
	}
	t.own[ns] = c
	return c
}

// Insert stores a new document.
func (t *Txn) Insert(ns Namespace, doc bson.Raw) (bson.Raw, error) {
	raw, err := withID(doc)
	if err != nil {
		return nil, err
	}
	e := &Entry{Op: OpInsert, NS: ns, ID: raw.Lookup("_id"), Doc: raw}
	return raw, t.change(ns, nil, raw, e)
}

// change checks, locks and makes one change.
func (t *Txn) change(ns Namespace, old *record, raw bson.Raw, e *Entry) error {
	c := t.writable(ns)
	var keys [][]string
	var err error
	if raw != nil {
		if keys, err = c.keysOf(raw); err != nil {
			return err
		}
	} else if keys, err = c.keysOf(old.raw); err != nil {
		return err
	}
	if err := t.lock(c, old, keys); err != nil {
		return err
	}
	if raw == nil {
		if err := c.remove(old); err != nil {
			return err
		}
		t.changes = append(t.changes, change{ns, old, nil, e})
		return nil
	}
	if err := c.conflict(keys, old); err != nil {
		return err
	}
	r, err := c.put(old, raw, keys)
	if err != nil {
		return err
	}
	t.changes = append(t.changes, change{ns, old, r, e})
	return nil
}

// lock takes the unique keys of a change. One that another transaction holds is
// a conflict, and so is a document that was written since the snapshot.
func (t *Txn) lock(c *collection, old *record, keys [][]string) error {
	t.engine.mu.Lock()
	defer t.engine.mu.Unlock()
	if t.ended {
		return Errorf(CodeNoSuchTransaction, "Transaction has been aborted.")
	}
	names := lockNames(c, keys)
	if old != nil {
		names = append(names, lockName(c, 0, old.key))
	}
	for _, name := range names {
		if holder := t.engine.locks[name]; holder != nil && holder != t {
			t.blocker = holder
			return writeConflict()
		}
	}
	if !t.session {
		return nil
	}
	if t.staleLocked(c.ns, old, keys) {
		return writeConflict()
	}
	for _, name := range names {
		if t.engine.locks[name] == nil {
			t.engine.locks[name] = t
			t.locks = append(t.locks, name)
		}
	}
	return nil
}

// staleLocked says whether the latest state differs from the snapshot in one of
// the keys.
func (t *Txn) staleLocked(ns Namespace, old *record, keys [][]string) bool {
	latest, base := (*t.engine.current.Load())[ns], t.base[ns]
	if latest == base {
		return false
	}
	if latest == nil || (base != nil && latest.uuid != base.uuid) {
		return base != nil
	}
	if old != nil && latest.byKey(old.key) != base.byKey(old.key) {
		return true
	}
	for i, x := range latest.indexes {
		if !x.spec.Unique || i >= len(keys) {
			continue
		}
		for _, k := range keys[i] {
			now, _ := x.tree.Get(k)
			if now != recordAt(base, i, k) {
				return true
			}
		}
	}
	return false
}

func recordAt(c *collection, index int, key string) *record {
	if c == nil || index >= len(c.indexes) {
		return nil
	}
	r, _ := c.indexes[index].tree.Get(key)
	return r
}

func lockNames(c *collection, keys [][]string) []string {
	var names []string
	for i, x := range c.indexes {
		if !x.spec.Unique {
			continue
		}
		for _, k := range keys[i] {
			names = append(names, lockName(c, i, k))
		}
	}
	return names
}

func lockName(c *collection, index int, key string) string {
	return c.ns.String() + "\x00" + c.indexes[index].spec.Name + "\x00" + key
}

// Abort drops the changes and the locks. It may be called at any time, also by
// another goroutine, and after the end.
func (t *Txn) Abort() {
	t.engine.mu.Lock()
	defer t.engine.mu.Unlock()
	t.endLocked()
}

func (t *Txn) endLocked() {
	if t.ended {
		return
	}
	t.ended = true
	for _, name := range t.locks {
		delete(t.engine.locks, name)
	}
	t.locks = nil
	close(t.done)
}

// Done is closed when the transaction has ended.
func (t *Txn) Done() <-chan struct{} { return t.done }
