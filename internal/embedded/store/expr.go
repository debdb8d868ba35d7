package store

import (
	"math"
	"strings"

	"github.com/256dpi/lungo/bsonkit"
	"github.com/256dpi/lungo/mongokit"
	bsonv1 "go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
)

// An aggregation expression: constants, "$field.path", $$ROOT and $$CURRENT,
// and the operators of this table. Anything else is an error.
type exprOperator struct {
	min, max int // arguments
	eval     func(doc bsonkit.Doc, args []any) (any, error)
}

var exprTable map[string]exprOperator

func init() {
	exprTable = map[string]exprOperator{
		"$eq":       {2, 2, compareWith(func(c int) bool { return c == 0 })},
		"$ne":       {2, 2, compareWith(func(c int) bool { return c != 0 })},
		"$gt":       {2, 2, compareWith(func(c int) bool { return c > 0 })},
		"$gte":      {2, 2, compareWith(func(c int) bool { return c >= 0 })},
		"$lt":       {2, 2, compareWith(func(c int) bool { return c < 0 })},
		"$lte":      {2, 2, compareWith(func(c int) bool { return c <= 0 })},
		"$and":      {0, math.MaxInt, evalAnd},
		"$or":       {0, math.MaxInt, evalOr},
		"$not":      {1, 1, evalNot},
		"$in":       {2, 2, evalIn},
		"$mod":      {2, 2, evalMod},
		"$type":     {1, 1, evalType},
		"$bsonSize": {1, 1, evalBSONSize},
		"$ifNull":   {2, math.MaxInt, evalIfNull},
		"$cond":     {3, 3, evalCond},
		"$add":      {1, math.MaxInt, evalAdd},
		"$subtract": {2, 2, evalSubtract},
		"$isNumber": {1, 1, evalIsNumber},
		"$literal":  {1, 1, nil},
		"$size":     {1, 1, evalSize},
	}
}

func matchExpr(_ mongokit.Context, doc bsonkit.Doc, _, _ string, v any) error {
	result, err := evalExpr(doc, v)
	if err != nil {
		return err
	}
	if truthy(result) {
		return nil
	}
	return mongokit.ErrNotMatched
}

// checkExpr finds unknown operators, and tells need which fields are read.
func checkExpr(v any, need func(string)) error {
	switch v := v.(type) {
	case string:
		return checkPath(v, need)
	case bsonv1.A:
		for _, item := range v {
			if err := checkExpr(item, need); err != nil {
				return err
			}
		}
	case bsonv1.D:
		return checkExprDocument(v, need)
	}
	return nil
}

func checkPath(s string, need func(string)) error {
	if strings.HasPrefix(s, "$$") {
		return Errorf(CodeNotImplemented, "variable %s is not supported here", s)
	}
	if path, ok := strings.CutPrefix(s, "$"); ok {
		need(path)
	}
	return nil
}

func checkExprDocument(d bsonv1.D, need func(string)) error {
	for _, e := range d {
		if e.Key == "$literal" {
			continue
		}
		if strings.HasPrefix(e.Key, "$") {
			op, known := exprTable[e.Key]
			if !known || len(d) != 1 {
				return Errorf(168, "Unrecognized expression '%s'", e.Key)
			}
			if n := len(exprArguments(e)); n < op.min || n > op.max {
				return Errorf(16020, "Expression %s takes exactly %d arguments. %d were passed in.", e.Key, op.min, n)
			}
		}
		if err := checkExpr(e.Value, need); err != nil {
			return err
		}
	}
	return nil
}

// exprArguments: a single argument need not stand in an array, and $cond has a
// form with names.
func exprArguments(e bsonv1.E) []any {
	if d, ok := e.Value.(bsonv1.D); ok && e.Key == "$cond" {
		args := make([]any, 0, 3)
		for _, name := range []string{"if", "then", "else"} {
			if v := bsonkit.Get(&d, name); v != bsonkit.Missing {
				args = append(args, v)
			}
		}
		return args
	}
	if a, ok := e.Value.(bsonv1.A); ok {
		return a
	}
	return []any{e.Value}
}

func evalExpr(doc bsonkit.Doc, v any) (any, error) {
	switch v := v.(type) {
	case string:
		if path, ok := strings.CutPrefix(v, "$"); ok {
			value, _ := bsonkit.All(doc, path, true, false)
			return value, nil
		}
	case bsonv1.A:
		out := make(bsonv1.A, len(v))
		for i, item := range v {
			value, err := evalExpr(doc, item)
			if err != nil {
				return nil, err
			}
			out[i] = nullIfMissing(value)
		}
		return out, nil
	case bsonv1.D:
		return evalDocument(doc, v)
	}
	return v, nil
}

func evalDocument(doc bsonkit.Doc, d bsonv1.D) (any, error) {
	if len(d) == 1 && strings.HasPrefix(d[0].Key, "$") {
		if d[0].Key == "$literal" {
			return d[0].Value, nil
		}
		op, known := exprTable[d[0].Key]
		if !known {
			return nil, Errorf(168, "Unrecognized expression '%s'", d[0].Key)
		}
		return op.eval(doc, exprArguments(d[0]))
	}
	out := make(bsonv1.D, 0, len(d))
	for _, e := range d {
		value, err := evalExpr(doc, e.Value)
		if err != nil {
			return nil, err
		}
		if value != bsonkit.Missing {
			out = append(out, bsonv1.E{Key: e.Key, Value: value})
		}
	}
	return out, nil
}

func evalAll(doc bsonkit.Doc, args []any) ([]any, error) {
	out := make([]any, len(args))
	for i, a := range args {
		v, err := evalExpr(doc, a)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

func nullIfMissing(v any) any {
	if v == bsonkit.Missing {
		return nil
	}
	return v
}

func truthy(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case nil, primitive.Undefined:
		return false
	case int32, int64, float64:
		return bsonkit.Compare(v, int32(0)) != 0
	}
	return v != bsonkit.Missing
}
