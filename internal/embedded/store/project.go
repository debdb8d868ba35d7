package store

import (
	"strings"

	"github.com/256dpi/lungo/mongokit"
	bsonv1 "go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Projection chooses fields. The nil projection leaves a document as it is.
type Projection struct {
	doc *bsonv1.D
	// top holds the fields of a projection that only takes in, or only leaves
	// out, fields of the top level; for others it is nil and lungo projects.
	top     map[string]bool
	include bool
}

// CompileProjection reads a projection.
func CompileProjection(raw bson.Raw) (*Projection, error) {
	if len(raw) <= len(emptyDocument) {
		return nil, nil
	}
	doc, err := decode(raw)
	if err != nil {
		return nil, err
	}
	p := &Projection{doc: doc, top: map[string]bool{}}
	decided := false
	for _, e := range *doc {
		on, plain := flag(e.Value)
		switch {
		case !plain && !isProjectionOperator(e.Value):
			return nil, Errorf(CodeNotImplemented, "projection %q: only 1, 0, $slice and $elemMatch are supported here", e.Key)
		case !plain, strings.Contains(e.Key, "."):
			p.top = nil
		}
		if plain && e.Key != "_id" {
			if decided && on != p.include {
				return nil, Errorf(31254, "Cannot do exclusion on field %s in inclusion projection", e.Key)
			}
			p.include, decided = on, true
		}
		if p.top != nil {
			p.top[e.Key] = on
		}
	}
	if !decided {
		p.include = p.top["_id"]
	}
	return p, nil
}

func flag(v any) (on, ok bool) {
	switch v := v.(type) {
	case bool:
		return v, true
	case int32:
		return v != 0, true
	case int64:
		return v != 0, true
	case float64:
		return v != 0, true
	}
	return false, false
}

func isProjectionOperator(v any) bool {
	d, ok := v.(bsonv1.D)
	return ok && len(d) == 1 && mongokit.ProjectionExpressionOperators[d[0].Key] != nil
}

// Apply makes the projected document.
func (p *Projection) Apply(raw bson.Raw) (bson.Raw, error) {
	if p == nil {
		return raw, nil
	}
	if p.top == nil {
		return p.applyLungo(raw)
	}
	elements, err := raw.Elements()
	if err != nil {
		return nil, Errorf(CodeBadValue, "decode document: %s", err)
	}
	out := make(bson.D, 0, len(elements))
	for _, e := range elements {
		named, listed := p.top[e.Key()]
		keep := named
		if !listed {
			keep = !p.include || e.Key() == "_id"
		}
		if keep {
			out = append(out, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	return bson.Marshal(out)
}

func (p *Projection) applyLungo(raw bson.Raw) (bson.Raw, error) {
	doc, err := decode(raw)
	if err != nil {
		return nil, err
	}
	res, err := mongokit.Project(doc, p.doc)
	if err != nil {
		return nil, Errorf(CodeBadValue, "%s", err)
	}
	return encode(res)
}

// Distinct lists the different values at a path.
func Distinct(docs []bson.Raw, path string) []bson.RawValue {
	seen := map[string]bool{}
	out := []bson.RawValue{}
	for _, doc := range docs {
		values, found := valuesAt(doc, path)
		if !found {
			continue
		}
		for _, v := range values {
			if k := string(AppendKey(nil, v)); v.Type != 0 && !seen[k] {
				seen[k] = true
				out = append(out, v)
			}
		}
	}
	return out
}
