package store

import (
	"bytes"
	"container/heap"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// sortField is one field of a sort or of an index key.
type sortField struct {
	path string
	desc bool
}

// append appends the key of one value, inverted where the order is descending.
func (f sortField) append(dst []byte, v bson.RawValue) []byte {
	start := len(dst)
	dst = AppendKey(dst, v)
	if f.desc {
		for i := start; i < len(dst); i++ {
			dst[i] ^= 0xff
		}
	}
	return dst
}

// parseSort reads {field: 1, other: -1}.
func parseSort(doc bson.Raw) ([]sortField, error) {
	if len(doc) == 0 {
		return nil, nil
	}
	elements, err := doc.Elements()
	if err != nil {
		return nil, Errorf(CodeBadValue, "decode sort: %s", err)
	}
	fields := make([]sortField, 0, len(elements))
	for _, e := range elements {
		direction, ok := e.Value().AsInt64OK()
		if e.Key() == "$natural" {
			return nil, Errorf(CodeNotImplemented, "sort by $natural is not supported here")
		}
		if !ok || (direction != 1 && direction != -1) {
			return nil, Errorf(15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)")
		}
		fields = append(fields, sortField{e.Key(), direction == -1})
	}
	return fields, nil
}

// sortKey is the key of a document: of an array the least element counts, or the
// greatest where the order is descending.
func sortKey(raw bson.Raw, fields []sortField) []byte {
	var key []byte
	for _, f := range fields {
		values, _ := valuesAt(raw, f.path)
		if len(values) == 1 {
			key = f.append(key, values[0])
			continue
		}
		var least []byte
		for _, v := range values {
			if k := f.append(nil, v); least == nil || bytes.Compare(k, least) < 0 {
				least = k
			}
		}
		key = append(key, least...)
	}
	return key
}

type sortItem struct {
	key []byte
	seq int
	raw bson.Raw
	rec *record
}

func (a *sortItem) compare(b *sortItem) int {
	if c := bytes.Compare(a.key, b.key); c != 0 {
		return c
	}
	return a.seq - b.seq
}

// sorter keeps the first n of what it is given, in order: all if n is 0.
type sorter struct {
	fields []sortField
	n      int
	items  []*sortItem
	seq    int
}

func (s *sorter) add(raw bson.Raw, rec *record) {
	s.seq++
	item := &sortItem{sortKey(raw, s.fields), s.seq, raw, rec}
	switch {
	case s.n == 0 || len(s.items) < s.n:
		if s.items = append(s.items, item); len(s.items) == s.n {
			heap.Init((*worst)(s))
		}
	case item.compare(s.items[0]) < 0:
		s.items[0] = item
		heap.Fix((*worst)(s), 0)
	}
}

func (s *sorter) sorted() []*sortItem {
	slices.SortFunc(s.items, (*sortItem).compare)
	return s.items
}

// worst is a heap with the last of the kept items on top.
type worst sorter

func (w *worst) Len() int           { return len(w.items) }
func (w *worst) Less(i, j int) bool { return w.items[i].compare(w.items[j]) > 0 }
func (w *worst) Swap(i, j int)      { w.items[i], w.items[j] = w.items[j], w.items[i] }
func (w *worst) Push(any)           { panic("store: the heap never grows") }
func (w *worst) Pop() any           { panic("store: the heap never shrinks") }
