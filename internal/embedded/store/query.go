package store

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Query asks for documents of one collection.
type Query struct {
	Filter *Filter
	Sort   bson.Raw
	Skip   int
	Limit  int // 0: no limit
}

// Find gives the matching documents. They are shared: not to be changed.
func Find(src Source, ns Namespace, q Query) ([]bson.Raw, error) {
	records, err := find(src.collection(ns), q)
	if err != nil {
		return nil, err
	}
	docs := make([]bson.Raw, len(records))
	for i, r := range records {
		docs[i] = r.raw
	}
	return docs, nil
}

// Count is the number of all documents of a collection.
func Count(src Source, ns Namespace) int {
	c := src.collection(ns)
	if c == nil {
		return 0
	}
	return c.docs.Len()
}

func find(c *collection, q Query) ([]*record, error) {
	fields, err := parseSort(q.Sort)
	if err != nil || c == nil {
		return nil, err
	}
	p := choosePlan(c, q, fields)
	if p.sorted {
		return collectInOrder(c, p, q)
	}
	s := sorter{fields: fields}
	if q.Limit > 0 {
		s.n = q.Skip + q.Limit
	}
	err = p.scan(c, q.Filter, func(r *record) bool { s.add(r.raw, r); return true })
	if err != nil {
		return nil, err
	}
	items := s.sorted()
	items = items[min(q.Skip, len(items)):]
	records := make([]*record, len(items))
	for i, item := range items {
		records[i] = item.rec
	}
	return records, nil
}

func collectInOrder(c *collection, p plan, q Query) ([]*record, error) {
	var records []*record
	skip := q.Skip
	err := p.scan(c, q.Filter, func(r *record) bool {
		if skip > 0 {
			skip--
			return true
		}
		records = append(records, r)
		return q.Limit == 0 || len(records) < q.Limit
	})
	return records, err
}

// scan yields what matches, until yield says stop.
func (p plan) scan(c *collection, f *Filter, yield func(*record) bool) error {
	var failed error
	visit := func(r *record) bool {
		ok, err := f.Match(r.raw)
		if err != nil {
			failed = err
			return false
		}
		return !ok || yield(r)
	}
	switch {
	case p.ids != nil:
		for _, k := range p.ids {
			if r := c.byKey(k); r != nil && !visit(r) {
				break
			}
		}
	case p.index != nil:
		p.scanIndex(visit)
	default:
		c.docs.Scan(func(_ uint64, r *record) bool { return visit(r) })
	}
	return failed
}

func (p plan) scanIndex(visit func(*record) bool) {
	if p.reverse {
		within := func(k string, r *record) bool { return k >= p.low && visit(r) }
		if p.high == "" {
			p.index.tree.Reverse(within)
		} else {
			p.index.tree.Descend(p.high, within)
		}
		return
	}
	p.index.tree.Ascend(p.low, func(k string, r *record) bool {
		return (p.high == "" || k <= p.high) && visit(r)
	})
}

// plan says how documents are found: by keys of _id, along an index, or by
// looking at all. Whatever it finds is matched again, so a plan may find more
// than what matches but never less.
type plan struct {
	ids       []string
	index     *index
	low, high string
	reverse   bool
	sorted    bool // comes in the order that was asked for
}

func choosePlan(c *collection, q Query, sort []sortField) plan {
	bounds := q.Filter.bounds()
	if b := bounds["_id"]; b != nil && b.points != nil {
		keys := slices.Compact(slices.Sorted(slices.Values(b.points)))
		return plan{ids: keys, sorted: len(sort) == 0 || len(keys) == 1}
	}
	best, bestScore := plan{sorted: len(sort) == 0}, 0
	for _, x := range c.indexes {
		if !x.plain() {
			continue
		}
		p, score := planFor(x, bounds[x.spec.fields[0].path], sort, q.Limit > 0)
		if score > bestScore {
			best, bestScore = p, score
		}
	}
	return best
}

func planFor(x *index, b *bound, sort []sortField, limited bool) (plan, int) {
	p, score := plan{index: x}, 0
	if b != nil && len(b.points) < 2 {
		p.low, p.high = b.span(x.spec.fields[0])
		if score += 2; b.points != nil {
			score += 2
		}
	}
	if len(sort) == 0 {
		p.sorted = score > 0
		return p, score
	}
	if same, reversed := orders(x.spec.fields, sort); same || reversed {
		p.sorted, p.reverse = true, reversed
		if score++; limited {
			score += 2
		}
	}
	return p, score
}

// orders says whether an index's order is the one of a sort, or its reverse.
func orders(index, sort []sortField) (same, reversed bool) {
	if len(sort) > len(index) {
		return false, false
	}
	same, reversed = true, true
	for i, f := range sort {
		same = same && index[i] == f
		reversed = reversed && index[i].path == f.path && index[i].desc != f.desc
	}
	return same, reversed
}
