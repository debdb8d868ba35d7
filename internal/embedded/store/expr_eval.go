package store

import (
	"slices"

	"github.com/256dpi/lungo/bsonkit"
	bsonv1 "go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/v2/bson"
)

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
