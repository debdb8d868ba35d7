package store

import (
	"strings"

	bsonv1 "go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
)

// bound is what a filter says about one field: that it equals one of points, or
// that it lies between low and high ("": open). They are keys of [AppendKey].
type bound struct {
	points    []string
	low, high string
}

// bounds reads the conditions that hold for every match: those at the top, and
// in a top-level $and.
func (f *Filter) bounds() map[string]*bound {
	out := map[string]*bound{}
	collectBounds(*f.doc, out)
	return out
}

func collectBounds(d bsonv1.D, out map[string]*bound) {
	for _, e := range d {
		if e.Key == "$and" {
			for _, item := range asArray(e.Value) {
				if sub, ok := item.(bsonv1.D); ok {
					collectBounds(sub, out)
				}
			}
			continue
		}
		if strings.HasPrefix(e.Key, "$") {
			continue
		}
		b := out[e.Key]
		if b == nil {
			b = &bound{}
		}
		if b.read(e.Value) {
			out[e.Key] = b
		}
	}
}

func (b *bound) read(v any) bool {
	d, ok := v.(bsonv1.D)
	if !ok || len(d) == 0 || !strings.HasPrefix(d[0].Key, "$") {
		return b.equal(bsonv1.A{v})
	}
	used := false
	for _, op := range d {
		switch op.Key {
		case "$eq":
			used = b.equal(bsonv1.A{op.Value}) || used
		case "$in":
			used = b.equal(asArray(op.Value)) || used
		case "$gt", "$gte":
			if k, ok := boundKey(op.Value); ok && k > b.low {
				b.low, used = k, true
			}
		case "$lt", "$lte":
			if k, ok := boundKey(op.Value); ok && (b.high == "" || k < b.high) {
				b.high, used = k, true
			}
		}
	}
	return used
}

func (b *bound) equal(values bsonv1.A) bool {
	points := make([]string, 0, len(values))
	for _, v := range values {
		k, ok := boundKey(v)
		if !ok {
			return false
		}
		points = append(points, k)
	}
	if b.points == nil || len(points) < len(b.points) {
		b.points = points
	}
	return true
}

// boundKey leaves out the values of which equality means more than equality:
// arrays (also one element matches), expressions, and null (also what's missing).
func boundKey(v any) (string, bool) {
	switch v.(type) {
	case nil, bsonv1.A, primitive.Regex, primitive.Undefined, primitive.Null:
		return "", false
	}
	raw, err := encodeValue(v)
	if err != nil {
		return "", false
	}
	return string(AppendKey(nil, raw)), true
}

// span is the part of an index, of which f is the first field, that the bound
// leaves. No component of a key begins with ff, so key+ff is behind all that
// begin with key.
func (b *bound) span(f sortField) (low, high string) {
	low, high = b.low, b.high
	if len(b.points) == 1 {
		low, high = b.points[0], b.points[0]
	}
	if f.desc {
		low, high = invert(high), invert(low)
	}
	if high != "" {
		high += "\xff"
	}
	return low, high
}

func invert(s string) string {
	out := []byte(s)
	for i := range out {
		out[i] ^= 0xff
	}
	return string(out)
}
