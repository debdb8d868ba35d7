package store

import (
	"strings"

	"github.com/256dpi/lungo/bsonkit"
	bsonv1 "go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/v2/bson"
)

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
