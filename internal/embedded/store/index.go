package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/btree"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// IndexSpec describes an index.
type IndexSpec struct {
	Name    string
	Key     bson.Raw
	Unique  bool
	Sparse  bool
	Partial bson.Raw
	// Expire is how long after the date in the key's field a document is
	// removed; nil: never.
	Expire *time.Duration

	fields  []sortField
	partial *Filter
}

func idIndexSpec() IndexSpec {
	key, _ := bson.Marshal(bson.D{{Key: "_id", Value: int32(1)}})
	return IndexSpec{Name: "_id_", Key: key, Unique: true, fields: []sortField{{path: "_id"}}}
}

// compile checks the specification, and readies it for use.
func (s *IndexSpec) compile() error {
	fields, err := parseSort(s.Key)
	if err != nil || len(fields) == 0 {
		return Errorf(CodeCannotCreateIndex, "Index keys must be 1 or -1 here, got %s", s.Key)
	}
	s.fields = fields
	if s.Expire != nil && len(fields) > 1 {
		return Errorf(CodeCannotCreateIndex, "TTL indexes are single-field indexes, compound indexes do not support TTL")
	}
	if s.Partial != nil {
		if s.partial, err = CompileFilter(s.Partial); err != nil {
			return err
		}
	}
	return nil
}

func (s *IndexSpec) equal(t *IndexSpec) bool {
	sameExpire := (s.Expire == nil) == (t.Expire == nil) && (s.Expire == nil || *s.Expire == *t.Expire)
	return s.sameKey(t) && s.Unique == t.Unique && s.Sparse == t.Sparse && sameExpire &&
		string(s.Partial) == string(t.Partial)
}

func (s *IndexSpec) sameKey(t *IndexSpec) bool { return slices.Equal(s.fields, t.fields) }

// String is the form in which a server names an index in its messages.
func (s *IndexSpec) String() string {
	return fmt.Sprintf("{ v: 2, key: %s, name: %q }", shellDocument(s.Key), s.Name)
}

type index struct {
	spec     IndexSpec
	tree     *btree.Map[string, *record]
	multikey bool
}

func newIndex(spec IndexSpec) *index {
	return &index{spec: spec, tree: new(btree.Map[string, *record])}
}

func (x *index) clone() *index {
	y := *x
	y.tree = x.tree.Copy()
	return &y
}

// plain says that the index has one entry for each document, so that it can
// stand for the whole collection.
func (x *index) plain() bool { return !x.multikey && x.spec.partial == nil && !x.spec.Sparse }

// keys are the document's keys: none if the index leaves it out, several if a
// field holds an array.
func (x *index) keys(raw bson.Raw) ([]string, error) {
	if x.spec.partial != nil {
		in, err := x.spec.partial.Match(raw)
		if err != nil || !in {
			return nil, err
		}
	}
	keys, present := [][]byte{nil}, false
	for _, f := range x.spec.fields {
		values, found := valuesAt(raw, f.path)
		present = present || found
		next := make([][]byte, 0, len(keys)*len(values))
		for _, k := range keys {
			for _, v := range values {
				next = append(next, f.append(slices.Clip(k), v))
			}
		}
		keys = next
	}
	if x.spec.Sparse && !present {
		return nil, nil
	}
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = string(k)
	}
	if len(out) > 1 {
		slices.Sort(out)
		out = slices.Compact(out)
	}
	return out, nil
}

func duplicateKey(ns Namespace, spec IndexSpec, holder bson.Raw) *Error {
	value := bson.D{}
	for _, f := range spec.fields {
		v, err := holder.LookupErr(strings.Split(f.path, ".")...)
		if err != nil {
			v = bson.RawValue{Type: bson.TypeNull}
		}
		value = append(value, bson.E{Key: f.path, Value: v})
	}
	raw, _ := bson.Marshal(value)
	return &Error{
		Code:       CodeDuplicateKey,
		Message:    fmt.Sprintf("E11000 duplicate key error collection: %s index: %s dup key: %s", ns, spec.Name, shellDocument(raw)),
		KeyPattern: spec.Key,
		KeyValue:   raw,
	}
}
