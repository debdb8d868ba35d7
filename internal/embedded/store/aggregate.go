package store

import (
	"strings"

	"github.com/256dpi/lungo/bsonkit"
	bsonv1 "go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Aggregate runs a pipeline of $match, $sort, $skip, $limit, $project, $count and
// $group. Any other stage is an error.
func Aggregate(src Source, ns Namespace, stages []bson.Raw) ([]bson.Raw, error) {
	q, rest, err := leadingQuery(stages)
	if err != nil {
		return nil, err
	}
	docs, err := Find(src, ns, q)
	for _, s := range rest {
		if err != nil {
			return nil, err
		}
		docs, err = runStage(s, docs)
	}
	return docs, err
}

// leadingQuery takes the stages in front that a query can do, with its indexes.
func leadingQuery(stages []bson.Raw) (Query, []bson.Raw, error) {
	q := Query{}
	var err error
	for rank := 0; len(stages) > 0; stages = stages[1:] {
		name, v, err := stage(stages[0])
		if err != nil {
			return q, nil, err
		}
		place := map[string]int{"$match": 1, "$sort": 2, "$skip": 3, "$limit": 4}[name]
		if place <= rank {
			break
		}
		n, isNumber := v.AsInt64OK()
		d, isDocument := v.DocumentOK()
		if (place <= 2 && !isDocument) || (place > 2 && (!isNumber || n < 0)) || (place == 4 && n == 0) {
			return q, nil, Errorf(CodeBadValue, "%s: bad argument %s", name, v)
		}
		switch rank = place; name {
		case "$match":
			if q.Filter, err = CompileFilter(d); err != nil {
				return q, nil, err
			}
		case "$sort":
			q.Sort = d
		case "$skip":
			q.Skip = int(n)
		case "$limit":
			q.Limit = int(n)
		}
	}
	if q.Filter == nil {
		q.Filter, err = CompileFilter(nil)
	}
	return q, stages, err
}

func stage(raw bson.Raw) (string, bson.RawValue, error) {
	elements, err := raw.Elements()
	if err != nil || len(elements) != 1 {
		return "", bson.RawValue{}, Errorf(40323, "A pipeline stage specification object must contain exactly one field.")
	}
	return elements[0].Key(), elements[0].Value(), nil
}

func runStage(raw bson.Raw, docs []bson.Raw) ([]bson.Raw, error) {
	name, v, err := stage(raw)
	if err != nil {
		return nil, err
	}
	n, _ := v.AsInt64OK()
	d, _ := v.DocumentOK()
	switch name {
	case "$match":
		return matchAll(docs, d)
	case "$sort":
		return sortAll(docs, d)
	case "$skip":
		return docs[min(max(0, int(n)), len(docs)):], nil
	case "$limit":
		return docs[:min(max(0, int(n)), len(docs))], nil
	case "$project":
		return projectAll(docs, d)
	case "$count":
		return countAll(docs, v)
	case "$group":
		return group(docs, d)
	}
	return nil, Errorf(CodeNotImplemented, "pipeline stage %s is not supported here", name)
}

func matchAll(docs []bson.Raw, d bson.Raw) ([]bson.Raw, error) {
	f, err := CompileFilter(d)
	if err != nil {
		return nil, err
	}
	var out []bson.Raw
	for _, doc := range docs {
		ok, err := f.Match(doc)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, doc)
		}
	}
	return out, nil
}

func sortAll(docs []bson.Raw, d bson.Raw) ([]bson.Raw, error) {
	fields, err := parseSort(d)
	if err != nil {
		return nil, err
	}
	s := sorter{fields: fields}
	for _, doc := range docs {
		s.add(doc, nil)
	}
	out := make([]bson.Raw, 0, len(docs))
	for _, item := range s.sorted() {
		out = append(out, item.raw)
	}
	return out, nil
}

func projectAll(docs []bson.Raw, d bson.Raw) ([]bson.Raw, error) {
	p, err := CompileProjection(d)
	if err != nil {
		return nil, err
	}
	out := make([]bson.Raw, len(docs))
	for i, doc := range docs {
		if out[i], err = p.Apply(doc); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func countAll(docs []bson.Raw, v bson.RawValue) ([]bson.Raw, error) {
	name, ok := v.StringValueOK()
	if !ok || name == "" {
		return nil, Errorf(40156, "the count field must be a non-empty string")
	}
	if len(docs) == 0 {
		return nil, nil
	}
	raw, err := bson.Marshal(bson.D{{Key: name, Value: int32(len(docs))}})
	return []bson.Raw{raw}, err
}

// accumulators of $group: each folds the next value into what it has so far.
var accumulators = map[string]func(so, v any) any{
	"$sum": func(so, v any) any {
		if so == bsonkit.Missing {
			so = int32(0)
		}
		if !isNumber(v) {
			return so
		}
		return bsonkit.Add(so, v)
	},
	"$min":   extreme(-1),
	"$max":   extreme(1),
	"$first": func(so, v any) any { return firstOf(so, nullIfMissing(v)) },
	"$last":  func(_, v any) any { return nullIfMissing(v) },
	"$push": func(so, v any) any {
		list := asArray(so)
		if v == bsonkit.Missing {
			return list
		}
		return append(list, v)
	},
}

func firstOf(so, v any) any {
	if so == bsonkit.Missing {
		return v
	}
	return so
}

func extreme(sign int) func(so, v any) any {
	return func(so, v any) any {
		if nullIfMissing(v) == nil {
			return so
		}
		if nullIfMissing(so) == nil || sign*bsonkit.Compare(v, so) > 0 {
			return v
		}
		return so
	}
}

type grouping struct {
	fields []string
	ops    []func(so, v any) any
	exprs  []any
	id     any
	needed map[string]bool
}

func parseGroup(d bson.Raw) (*grouping, error) {
	doc, err := decode(d)
	if err != nil {
		return nil, err
	}
	g := &grouping{id: bsonkit.Missing, needed: map[string]bool{}}
	need := func(path string) {
		head, _, _ := strings.Cut(path, ".")
		g.needed[head] = true
	}
	for _, e := range *doc {
		expr := e.Value
		if e.Key == "_id" {
			g.id = expr
		} else {
			acc, ok := expr.(bsonv1.D)
			if !ok || len(acc) != 1 || accumulators[acc[0].Key] == nil {
				return nil, Errorf(CodeNotImplemented, "$group: the accumulator of %s is not supported here", e.Key)
			}
			expr = acc[0].Value
			g.fields, g.ops, g.exprs = append(g.fields, e.Key), append(g.ops, accumulators[acc[0].Key]), append(g.exprs, expr)
		}
		if err := checkExpr(expr, need); err != nil {
			return nil, err
		}
	}
	if g.id == bsonkit.Missing {
		return nil, Errorf(15955, "a group specification must include an _id")
	}
	return g, nil
}

func group(docs []bson.Raw, d bson.Raw) ([]bson.Raw, error) {
	g, err := parseGroup(d)
	if err != nil {
		return nil, err
	}
	groups, order := map[string]*bsonv1.D{}, []*bsonv1.D{}
	for _, raw := range docs {
		doc, err := decodeFields(raw, g.needed)
		if err != nil {
			return nil, err
		}
		row, err := g.row(doc, groups, &order)
		if err != nil {
			return nil, err
		}
		for i, op := range g.ops {
			v, err := evalExpr(doc, g.exprs[i])
			if err != nil {
				return nil, err
			}
			(*row)[i+1].Value = op((*row)[i+1].Value, v)
		}
	}
	out := make([]bson.Raw, len(order))
	for i, row := range order {
		for j := range *row {
			(*row)[j].Value = nullIfMissing((*row)[j].Value)
		}
		if out[i], err = encode(row); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (g *grouping) row(doc bsonkit.Doc, groups map[string]*bsonv1.D, order *[]*bsonv1.D) (*bsonv1.D, error) {
	id, err := evalExpr(doc, g.id)
	if err != nil {
		return nil, err
	}
	id = nullIfMissing(id)
	value, err := encodeValue(id)
	if err != nil {
		return nil, err
	}
	key := string(AppendKey(nil, value))
	if row := groups[key]; row != nil {
		return row, nil
	}
	row := &bsonv1.D{{Key: "_id", Value: id}}
	for _, name := range g.fields {
		*row = append(*row, bsonv1.E{Key: name, Value: bsonkit.Missing})
	}
	groups[key] = row
	*order = append(*order, row)
	return row, nil
}
