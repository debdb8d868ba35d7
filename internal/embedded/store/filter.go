package store

import (
	"errors"
	"maps"
	"regexp"
	"strings"

	"github.com/256dpi/lungo/bsonkit"
	"github.com/256dpi/lungo/mongokit"
	bsonv1 "go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Filter is a compiled query. lungo matches; what it lacks ($expr, $regex,
// $comment) is added here.
type Filter struct {
	raw    bson.Raw
	doc    *bsonv1.D
	fields map[string]bool // nil: all
}

var (
	topOperators  = maps.Clone(mongokit.TopLevelQueryOperators)
	exprOperators = maps.Clone(mongokit.ExpressionQueryOperators)
)

func init() {
	topOperators["$expr"] = matchExpr
	topOperators["$comment"] = func(mongokit.Context, bsonkit.Doc, string, string, any) error { return nil }
	exprOperators["$regex"] = matchRegex
	exprOperators["$options"] = func(mongokit.Context, bsonkit.Doc, string, string, any) error { return nil }
	delete(topOperators, "$jsonSchema")
}

// CompileFilter checks the operators of a query, so that one that is unknown is
// an error also where no document is there to be matched.
func CompileFilter(raw bson.Raw) (*Filter, error) {
	if len(raw) == 0 {
		raw = emptyDocument
	}
	doc, err := decode(raw)
	if err != nil {
		return nil, err
	}
	f := &Filter{raw: raw, doc: doc, fields: map[string]bool{}}
	return f, f.check(*doc)
}

var emptyDocument = bson.Raw{5, 0, 0, 0, 0}

func (f *Filter) check(d bsonv1.D) error {
	for i, e := range d {
		if !strings.HasPrefix(e.Key, "$") {
			f.need(e.Key)
			if err := f.checkField(&d[i]); err != nil {
				return err
			}
			continue
		}
		if topOperators[e.Key] == nil {
			return Errorf(CodeBadValue, "unknown top level operator: %s", e.Key)
		}
		switch v := e.Value.(type) {
		case bsonv1.A: // $and, $or, $nor
			for _, item := range v {
				sub, ok := item.(bsonv1.D)
				if !ok {
					return Errorf(CodeBadValue, "$or/$and/$nor entries need to be full objects")
				}
				if err := f.check(sub); err != nil {
					return err
				}
			}
		default:
			if e.Key == "$expr" {
				if err := checkExpr(v, f.need); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (f *Filter) checkField(e *bsonv1.E) error {
	if re, ok := e.Value.(primitive.Regex); ok {
		e.Value = bsonv1.D{{Key: "$regex", Value: re}}
	}
	d, ok := e.Value.(bsonv1.D)
	if !ok || len(d) == 0 || !strings.HasPrefix(d[0].Key, "$") {
		return nil
	}
	for i, op := range d {
		if exprOperators[op.Key] == nil || op.Key == "" {
			return Errorf(CodeBadValue, "unknown operator: %s", op.Key)
		}
		if op.Key == "$regex" {
			if err := compileRegex(d, i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *Filter) need(path string) {
	head, _, _ := strings.Cut(path, ".")
	f.fields[head] = true
}

// Match says whether the document matches.
func (f *Filter) Match(raw bson.Raw) (bool, error) {
	if len(*f.doc) == 0 {
		return true, nil
	}
	doc, err := decodeFields(raw, f.fields)
	if err != nil {
		return false, err
	}
	ctx := mongokit.Context{TopLevel: topOperators, Expression: exprOperators}
	err = mongokit.Process(ctx, doc, *f.doc, "", true)
	if errors.Is(err, mongokit.ErrNotMatched) {
		return false, nil
	}
	var coded *Error
	if err != nil && !errors.As(err, &coded) {
		err = Errorf(CodeBadValue, "%s", err)
	}
	return err == nil, err
}

// compileRegex puts the compiled expression in the operator's place.
func compileRegex(d bsonv1.D, at int) error {
	var pattern, options string
	switch v := d[at].Value.(type) {
	case string:
		pattern = v
	case primitive.Regex:
		pattern, options = v.Pattern, v.Options
	default:
		return Errorf(CodeBadValue, "$regex has to be a string")
	}
	for _, e := range d {
		if s, ok := e.Value.(string); ok && e.Key == "$options" {
			options = s
		}
	}
	if strings.Trim(options, "ims") != "" {
		return Errorf(CodeNotImplemented, "regular expression options %q are not supported here", options)
	}
	if options != "" {
		pattern = "(?" + options + ")" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return Errorf(51091, "Regular expression is invalid: %s", err)
	}
	d[at].Value = re
	return nil
}

func matchRegex(_ mongokit.Context, doc bsonkit.Doc, _, path string, v any) error {
	re, ok := v.(*regexp.Regexp)
	if !ok {
		return Errorf(CodeNotImplemented, "$regex is not supported at this place here")
	}
	value, _ := bsonkit.All(doc, path, true, true)
	for _, item := range append(bsonv1.A{value}, asArray(value)...) {
		if s, ok := item.(string); ok && re.MatchString(s) {
			return nil
		}
	}
	return mongokit.ErrNotMatched
}

func asArray(v any) bsonv1.A {
	a, _ := v.(bsonv1.A)
	return a
}
