package store

import "go.mongodb.org/mongo-driver/v2/bson"

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
