package store

import (
	"encoding/binary"

	"github.com/google/uuid"
	"github.com/tidwall/btree"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Namespace names a collection.
type Namespace struct{ DB, Coll string }

// String is "<db>.<collection>".
func (n Namespace) String() string { return n.DB + "." + n.Coll }

// record is one version of a document. It is never changed: an update puts
// another record of the same id in its place, so a pointer tells a version.
type record struct {
	id  uint64
	key string // of _id
	raw bson.Raw
}

// collection is a set of documents with its indexes. Trees copy on write: a copy
// costs nothing, and what is published is never written again.
type collection struct {
	ns      Namespace
	uuid    uuid.UUID
	nextID  uint64
	docs    *btree.Map[uint64, *record]
	indexes []*index // the first is that of _id
}

func newCollection(ns Namespace) *collection {
	c := &collection{ns: ns, uuid: uuid.New(), docs: new(btree.Map[uint64, *record])}
	c.indexes = []*index{newIndex(idIndexSpec())}
	return c
}

// clone must be called under the engine's lock: copying marks the original too.
func (c *collection) clone() *collection {
	d := *c
	d.docs = c.docs.Copy()
	d.indexes = make([]*index, len(c.indexes))
	for i, x := range c.indexes {
		d.indexes[i] = x.clone()
	}
	return &d
}

func (c *collection) byKey(key string) *record {
	if c == nil {
		return nil
	}
	r, _ := c.indexes[0].tree.Get(key)
	return r
}

// keysOf gives the keys of a document in every index.
func (c *collection) keysOf(raw bson.Raw) ([][]string, error) {
	keys := make([][]string, len(c.indexes))
	for i, x := range c.indexes {
		k, err := x.keys(raw)
		if err != nil {
			return nil, err
		}
		keys[i] = k
	}
	return keys, nil
}

// conflict finds a unique key that another document than own holds.
func (c *collection) conflict(keys [][]string, own *record) error {
	for i, x := range c.indexes {
		if !x.spec.Unique {
			continue
		}
		for _, k := range keys[i] {
			r, taken := x.tree.Get(k)
			if taken && (own == nil || r.id != own.id) {
				return duplicateKey(c.ns, x.spec, r.raw)
			}
		}
	}
	return nil
}

// put stores raw as a new document, or in the place of old. Keys must have been
// checked by conflict.
func (c *collection) put(old *record, raw bson.Raw, keys [][]string) (*record, error) {
	r := &record{raw: raw, key: keys[0][0]}
	if old != nil {
		r.id = old.id
		if err := c.unindex(old); err != nil {
			return nil, err
		}
	} else {
		c.nextID++
		r.id = c.nextID
	}
	c.docs.Set(r.id, r)
	for i, x := range c.indexes {
		for _, k := range keys[i] {
			x.tree.Set(x.entry(k, r), r)
		}
		x.multikey = x.multikey || len(keys[i]) > 1
	}
	return r, nil
}

func (c *collection) remove(old *record) error {
	if err := c.unindex(old); err != nil {
		return err
	}
	c.docs.Delete(old.id)
	return nil
}

func (c *collection) unindex(old *record) error {
	keys, err := c.keysOf(old.raw)
	if err != nil {
		return err
	}
	for i, x := range c.indexes {
		for _, k := range keys[i] {
			x.tree.Delete(x.entry(k, old))
		}
	}
	return nil
}

// entry is where a record stands in the index's tree: in one that is not unique
// the record's id makes equal keys differ.
func (x *index) entry(key string, r *record) string {
	if x.spec.Unique {
		return key
	}
	return string(binary.BigEndian.AppendUint64([]byte(key), r.id))
}
