package store

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// CollectionInfo describes a collection.
type CollectionInfo struct {
	NS   Namespace
	UUID [16]byte
}

// Collections lists the collections of a database, or of all if db is "".
func (v View) Collections(db string) []CollectionInfo {
	var out []CollectionInfo
	for ns, c := range v.state {
		if db == "" || ns.DB == db {
			out = append(out, CollectionInfo{ns, c.uuid})
		}
	}
	slices.SortFunc(out, func(a, b CollectionInfo) int { return cmp.Compare(a.NS.String(), b.NS.String()) })
	return out
}

// Has says whether the collection exists.
func (v View) Has(ns Namespace) bool { return v.state[ns] != nil }

// Indexes lists the indexes of a collection, that of _id first.
func (v View) Indexes(ns Namespace) ([]IndexSpec, error) {
	c := v.state[ns]
	if c == nil {
		return nil, Errorf(CodeNamespaceNotFound, "ns does not exist: %s", ns)
	}
	out := make([]IndexSpec, len(c.indexes))
	for i, x := range c.indexes {
		out[i] = x.spec
	}
	return out, nil
}

func checkName(ns Namespace) error {
	if ns.Coll == "" || strings.HasPrefix(ns.Coll, ".") || strings.ContainsAny(ns.Coll, "$\x00") {
		return Errorf(CodeInvalidNamespace, "Invalid namespace specified '%s'", ns)
	}
	return nil
}

// CheckNamespace says what is wrong with a namespace.
func CheckNamespace(ns Namespace) error { return checkName(ns) }

// Create makes an empty collection.
func (e *Engine) Create(ns Namespace) error {
	if err := checkName(ns); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if (*e.current.Load())[ns] != nil {
		return Errorf(CodeNamespaceExists, "Collection already exists. NS: %s", ns)
	}
	c := newCollection(ns)
	e.appendLocked([]*Entry{{Op: OpCreate, NS: ns, UUID: c.uuid}}, nil, 0)
	e.publishLocked(map[Namespace]*collection{ns: c})
	return nil
}

// Drop removes a collection and says how many indexes it had.
func (e *Engine) Drop(ns Namespace) (indexes int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := (*e.current.Load())[ns]
	if c == nil {
		return 0, Errorf(CodeNamespaceNotFound, "ns not found")
	}
	e.dropLocked(c)
	return len(c.indexes), nil
}

func (e *Engine) dropLocked(c *collection) {
	e.appendLocked([]*Entry{{Op: OpDrop, NS: c.ns, UUID: c.uuid}}, nil, 0)
	e.publishLocked(map[Namespace]*collection{c.ns: nil})
}

// DropDatabase removes all collections of a database.
func (e *Engine) DropDatabase(db string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for ns, c := range *e.current.Load() {
		if ns.DB == db {
			e.dropLocked(c)
		}
	}
}

// Rename gives a collection another name; dropTarget removes one that has it.
func (e *Engine) Rename(from, to Namespace, dropTarget bool) error {
	if err := checkName(to); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c, target := (*e.current.Load())[from], (*e.current.Load())[to]
	switch {
	case c == nil:
		return Errorf(CodeNamespaceNotFound, "Source collection %s does not exist", from)
	case from == to:
		return Errorf(CodeIllegalOperation, "Can't rename a collection to itself")
	case target != nil && !dropTarget:
		return Errorf(CodeNamespaceExists, "target namespace exists")
	case target != nil:
		e.dropLocked(target)
	}
	moved := c.clone()
	moved.ns = to
	e.appendLocked([]*Entry{{Op: OpRename, NS: from, UUID: c.uuid, To: to}}, nil, 0)
	e.publishLocked(map[Namespace]*collection{from: nil, to: moved})
	return nil
}

// IndexResult tells how many indexes there were before and after.
type IndexResult struct {
	Before, After int
	Created       bool // the collection
}

// CreateIndexes makes indexes, and the collection if it isn't there. One that
// exists already is left as it is.
func (e *Engine) CreateIndexes(ns Namespace, specs []IndexSpec) (IndexResult, error) {
	var res IndexResult
	if err := checkName(ns); err != nil {
		return res, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := (*e.current.Load())[ns]
	if res.Created = c == nil; res.Created {
		c = newCollection(ns)
	} else {
		c = c.clone()
	}
	res.Before = len(c.indexes)
	for _, spec := range specs {
		if err := c.addIndex(spec); err != nil {
			return res, err
		}
	}
	if res.After = len(c.indexes); res.After == res.Before && !res.Created {
		return res, nil
	}
	e.appendLocked([]*Entry{{Op: OpIndex, NS: ns, UUID: c.uuid}}, nil, 0)
	e.publishLocked(map[Namespace]*collection{ns: c})
	return res, nil
}

func (c *collection) addIndex(spec IndexSpec) error {
	if err := spec.compile(); err != nil {
		return err
	}
	for _, x := range c.indexes {
		have := &x.spec
		switch {
		case have.equal(&spec) && have.Name == spec.Name, have.Name == "_id_" && have.sameKey(&spec):
			return nil
		case have.Name == spec.Name && have.sameKey(&spec):
			return Errorf(CodeIndexOptionsConflict, "An existing index has the same name as the requested index but other options. Requested index: %s, existing index: %s", &spec, have)
		case have.Name == spec.Name:
			return Errorf(CodeIndexKeySpecsConflict, "Index must have unique name.The existing index: %s has the same name as the requested index: %s", have, &spec)
		case have.sameKey(&spec):
			return Errorf(CodeIndexOptionsConflict, "Index with name: %s already exists with a different name", spec.Name)
		}
	}
	x, err := c.build(spec)
	if err != nil {
		return err
	}
	c.indexes = append(c.indexes, x)
	return nil
}

func (c *collection) build(spec IndexSpec) (*index, error) {
	x := newIndex(spec)
	var failed error
	c.docs.Scan(func(_ uint64, r *record) bool {
		keys, err := x.keys(r.raw)
		if err != nil {
			failed = err
			return false
		}
		x.multikey = x.multikey || len(keys) > 1
		for _, k := range keys {
			if old, taken := x.tree.Set(x.entry(k, r), r); taken && old.id != r.id {
				failed = duplicateKey(c.ns, spec, r.raw)
				return false
			}
		}
		return true
	})
	return x, failed
}

// DropIndexes removes the indexes that match says, but never that of _id. It
// says how many there were.
func (e *Engine) DropIndexes(ns Namespace, match func(IndexSpec) bool) (before, dropped int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := (*e.current.Load())[ns]
	if c == nil {
		return 0, 0, Errorf(CodeNamespaceNotFound, "ns not found %s", ns)
	}
	c = c.clone()
	before = len(c.indexes)
	c.indexes = append(c.indexes[:1:1], slices.DeleteFunc(c.indexes[1:], func(x *index) bool { return match(x.spec) })...)
	if dropped = before - len(c.indexes); dropped > 0 {
		e.appendLocked([]*Entry{{Op: OpIndex, NS: ns, UUID: c.uuid}}, nil, 0)
		e.publishLocked(map[Namespace]*collection{ns: c})
	}
	return before, dropped, nil
}

// Expire removes what the TTL indexes say is to go at now.
func (e *Engine) Expire(ctx context.Context, now time.Time) error {
	for ns, c := range *e.current.Load() {
		for _, x := range c.indexes {
			if x.spec.Expire == nil {
				continue
			}
			limit := now.Add(-*x.spec.Expire)
			query, err := bson.Marshal(bson.D{{Key: x.spec.fields[0].path, Value: bson.D{{Key: "$lt", Value: limit}}}})
			if err != nil {
				return err
			}
			f, err := CompileFilter(query)
			if err != nil {
				return err
			}
			err = e.Write(ctx, func(t *Txn) error {
				_, err := t.Delete(ns, Query{Filter: f})
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
