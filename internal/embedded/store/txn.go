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

// Commit makes the changes visible, all at once and under one time.
func (t *Txn) Commit(lsid bson.Raw, number int64) error { return t.commit(lsid, number) }

func (t *Txn) commit(lsid bson.Raw, number int64) error {
	e := t.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.ended {
		return Errorf(CodeNoSuchTransaction, "Transaction has been aborted.")
	}
	defer t.endLocked()
	if len(t.changes) == 0 {
		return nil
	}
	merged, err := t.mergeLocked()
	if err != nil {
		return err
	}
	e.appendLocked(t.entriesLocked(merged), lsid, number)
	e.publishLocked(merged)
	return nil
}

func (t *Txn) entriesLocked(merged map[Namespace]*collection) []*Entry {
	entries := make([]*Entry, 0, len(t.changes))
	created := map[Namespace]bool{}
	for _, ch := range t.changes {
		c := merged[ch.ns]
		ch.entry.UUID = c.uuid
		if (*t.engine.current.Load())[ch.ns] == nil && !created[ch.ns] && !t.session {
			// A transaction shows the creation of a collection under a time of
			// its own; leaving it out keeps the indexes of its operations.
			entries = append(entries, &Entry{Op: OpCreate, NS: ch.ns, UUID: c.uuid})
			created[ch.ns] = true
		}
		entries = append(entries, ch.entry)
	}
	return entries
}

// mergeLocked gives the collections as they are after the commit: the
// transaction's own copies where nobody else wrote, else its changes done again
// on the latest version.
func (t *Txn) mergeLocked() (map[Namespace]*collection, error) {
	latest := *t.engine.current.Load()
	merged, again := map[Namespace]*collection{}, map[Namespace]bool{}
	for _, ch := range t.changes {
		if merged[ch.ns] != nil {
			continue
		}
		now, base := latest[ch.ns], t.base[ch.ns]
		switch {
		case now == base:
			merged[ch.ns] = t.own[ch.ns]
		case now == nil, base != nil && now.uuid != base.uuid:
			return nil, writeConflict() // dropped or renamed meanwhile
		default:
			merged[ch.ns], again[ch.ns] = now.clone(), true
		}
	}
	for _, ch := range t.changes {
		if !t.session && t.lockedElsewhereLocked(ch) {
			return nil, writeConflict()
		}
		if again[ch.ns] {
			if err := redo(merged[ch.ns], ch); err != nil {
				return nil, err
			}
		}
	}
	return merged, nil
}

// lockedElsewhereLocked looks for a lock that was taken since the single write
// looked.
func (t *Txn) lockedElsewhereLocked(ch change) bool {
	if len(t.engine.locks) == 0 {
		return false
	}
	c := t.own[ch.ns]
	for _, r := range []*record{ch.old, ch.new} {
		if r == nil {
			continue
		}
		keys, err := c.keysOf(r.raw)
		if err != nil {
			return true
		}
		for _, name := range lockNames(c, keys) {
			if holder := t.engine.locks[name]; holder != nil && holder != t {
				t.blocker = holder
				return true
			}
		}
	}
	return false
}

func redo(c *collection, ch change) error {
	var old *record
	if ch.old != nil {
		if old = c.byKey(ch.old.key); old == nil || !sameVersion(old, ch.old) {
			return writeConflict()
		}
	}
	if ch.new == nil {
		return c.remove(old)
	}
	keys, err := c.keysOf(ch.new.raw)
	if err != nil {
		return err
	}
	if c.conflict(keys, old) != nil {
		return writeConflict()
	}
	_, err = c.put(old, ch.new.raw, keys)
	return err
}

// sameVersion: of a document that the transaction changed twice, the second
// change's old version is one of its own, put again under another pointer.
func sameVersion(a, b *record) bool {
	return a == b || &a.raw[0] == &b.raw[0]
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
