package store

import (
	"math"
	"slices"
	"strings"

	"github.com/256dpi/lungo/bsonkit"
	"github.com/256dpi/lungo/mongokit"
	bsonv1 "go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/v2/bson"
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

// compareWith compares as expressions do: without type bracketing, a missing
// value before everything.
func compareWith(is func(int) bool) func(bsonkit.Doc, []any) (any, error) {
	return func(doc bsonkit.Doc, args []any) (any, error) {
		v, err := evalAll(doc, args)
		if err != nil {
			return nil, err
		}
		l, r := v[0] == bsonkit.Missing, v[1] == bsonkit.Missing
		switch {
		case l && r:
			return is(0), nil
		case l:
			return is(-1), nil
		case r:
			return is(1), nil
		}
		return is(bsonkit.Compare(v[0], v[1])), nil
	}
}

func evalAnd(doc bsonkit.Doc, args []any) (any, error) {
	for _, a := range args {
		v, err := evalExpr(doc, a)
		if err != nil || !truthy(v) {
			return false, err
		}
	}
	return true, nil
}

func evalOr(doc bsonkit.Doc, args []any) (any, error) {
	for _, a := range args {
		v, err := evalExpr(doc, a)
		if err != nil {
			return nil, err
		}
		if truthy(v) {
			return true, nil
		}
	}
	return false, nil
}

func evalNot(doc bsonkit.Doc, args []any) (any, error) {
	v, err := evalExpr(doc, args[0])
	return !truthy(v), err
}

func evalIn(doc bsonkit.Doc, args []any) (any, error) {
	v, err := evalAll(doc, args)
	if err != nil {
		return nil, err
	}
	list, ok := v[1].(bsonv1.A)
	if !ok {
		return nil, Errorf(40081, "$in requires an array as a second argument")
	}
	return slices.ContainsFunc(list, func(item any) bool {
		return v[0] != bsonkit.Missing && bsonkit.Compare(item, v[0]) == 0
	}), nil
}

func evalType(doc bsonkit.Doc, args []any) (any, error) {
	v, err := evalExpr(doc, args[0])
	if err != nil {
		return nil, err
	}
	if v == bsonkit.Missing {
		return "missing", nil
	}
	_, t := bsonkit.Inspect(v)
	return typeName(bson.Type(t)), nil
}

func evalBSONSize(doc bsonkit.Doc, args []any) (any, error) {
	v, err := evalExpr(doc, args[0])
	if err != nil {
		return nil, err
	}
	switch d := nullIfMissing(v).(type) {
	case nil:
		return nil, nil
	case bsonv1.D:
		raw, err := encode(&d)
		return int32(len(raw)), err
	}
	return nil, Errorf(31393, "$bsonSize requires a document input")
}

func evalIfNull(doc bsonkit.Doc, args []any) (any, error) {
	for _, a := range args[:len(args)-1] {
		v, err := evalExpr(doc, a)
		if err != nil || nullIfMissing(v) != nil {
			return v, err
		}
	}
	return evalExpr(doc, args[len(args)-1])
}

func evalCond(doc bsonkit.Doc, args []any) (any, error) {
	v, err := evalExpr(doc, args[0])
	if err != nil {
		return nil, err
	}
	if truthy(v) {
		return evalExpr(doc, args[1])
	}
	return evalExpr(doc, args[2])
}

func evalSize(doc bsonkit.Doc, args []any) (any, error) {
	v, err := evalExpr(doc, args[0])
	if err != nil {
		return nil, err
	}
	list, ok := v.(bsonv1.A)
	if !ok {
		return nil, Errorf(17124, "The argument to $size must be an array")
	}
	return int32(len(list)), nil
}

func evalIsNumber(doc bsonkit.Doc, args []any) (any, error) {
	v, err := evalExpr(doc, args[0])
	return isNumber(v), err
}

func isNumber(v any) bool {
	class, _ := bsonkit.Inspect(v)
	return class == bsonkit.Number && v != bsonkit.Missing
}

func evalMod(doc bsonkit.Doc, args []any) (any, error) {
	v, err := evalAll(doc, args)
	if err != nil {
		return nil, err
	}
	if nullIfMissing(v[0]) == nil || nullIfMissing(v[1]) == nil {
		return nil, nil
	}
	if !isNumber(v[0]) || !isNumber(v[1]) {
		return nil, Errorf(16611, "$mod only supports numeric types")
	}
	if bsonkit.Compare(v[1], int32(0)) == 0 {
		return nil, Errorf(16610, "can't $mod by zero")
	}
	return bsonkit.Mod(v[0], v[1]), nil
}

func evalAdd(doc bsonkit.Doc, args []any) (any, error) {
	v, err := evalAll(doc, args)
	if err != nil {
		return nil, err
	}
	var sum any = int32(0)
	for _, n := range v {
		if nullIfMissing(n) == nil {
			return nil, nil
		}
		if !isNumber(n) {
			return nil, Errorf(16554, "$add only supports numeric types here")
		}
		sum = bsonkit.Add(sum, n)
	}
	return sum, nil
}

func evalSubtract(doc bsonkit.Doc, args []any) (any, error) {
	v, err := evalAll(doc, args)
	if err != nil {
		return nil, err
	}
	if nullIfMissing(v[0]) == nil || nullIfMissing(v[1]) == nil {
		return nil, nil
	}
	if !isNumber(v[0]) || !isNumber(v[1]) {
		return nil, Errorf(16556, "$subtract only supports numeric types here")
	}
	return bsonkit.Add(v[0], bsonkit.Mul(v[1], int32(-1))), nil
}

var typeNames = map[bson.Type]string{
	bson.TypeDouble: "double", bson.TypeString: "string", bson.TypeEmbeddedDocument: "object", bson.TypeArray: "array",
	bson.TypeBinary: "binData", bson.TypeUndefined: "undefined", bson.TypeObjectID: "objectId", bson.TypeBoolean: "bool",
	bson.TypeDateTime: "date", bson.TypeNull: "null", bson.TypeRegex: "regex", bson.TypeInt32: "int",
	bson.TypeTimestamp: "timestamp", bson.TypeInt64: "long", bson.TypeDecimal128: "decimal",
	bson.TypeMinKey: "minKey", bson.TypeMaxKey: "maxKey",
}

func typeName(t bson.Type) string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return t.String()
}
