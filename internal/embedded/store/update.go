package store

import (
	"bytes"
	"slices"
	"strings"

	"github.com/256dpi/lungo/bsonkit"
	"github.com/256dpi/lungo/mongokit"
	bsonv1 "go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Update is a compiled update: operators, or a document to put in the place of
// the old one.
type Update struct {
	replacement  bson.Raw
	operators    *bsonv1.D
	arrayFilters bsonkit.List
}

// CompileUpdate reads the u of an update statement.
func CompileUpdate(u bson.RawValue, arrayFilters []bson.Raw) (*Update, error) {
	switch u.Type {
	case bson.TypeEmbeddedDocument:
	case bson.TypeArray:
		return nil, Errorf(CodeNotImplemented, "pipeline-style updates are not supported here")
	default:
		return nil, Errorf(CodeFailedToParse, "Update argument must be either an object or an array")
	}
	raw := bson.Raw(u.Value)
	if first, err := raw.IndexErr(0); err != nil || !strings.HasPrefix(first.Key(), "$") {
		return &Update{replacement: raw}, nil
	}
	doc, err := decode(raw)
	if err != nil {
		return nil, err
	}
	for _, e := range *doc {
		if mongokit.FieldUpdateOperators[e.Key] == nil {
			return nil, Errorf(CodeFailedToParse, "Unknown modifier: %s. Expected a valid update modifier or pipeline-style update specified as an array", e.Key)
		}
		fields, ok := e.Value.(bsonv1.D)
		if !ok {
			return nil, Errorf(CodeFailedToParse, "Modifiers operate on fields but we found type %s instead", e.Key)
		}
		if len(fields) == 0 {
			return nil, Errorf(CodeFailedToParse, "'%s' is empty. You must specify a field like so: {%s: {<field>: ...}}", e.Key, e.Key)
		}
		if err := checkFields(e.Key, fields); err != nil {
			return nil, err
		}
	}
	out := &Update{operators: doc}
	for _, f := range arrayFilters {
		d, err := decode(f)
		if err != nil {
			return nil, err
		}
		out.arrayFilters = append(out.arrayFilters, d)
	}
	return out, nil
}

// checkFields looks at what an operator puts into a document as it stands.
func checkFields(operator string, fields bsonv1.D) error {
	if operator != "$set" && operator != "$setOnInsert" {
		return nil
	}
	for _, f := range fields {
		if err := checkAssigned(f.Key, f.Value); err != nil {
			return err
		}
	}
	return nil
}

// IsReplacement says whether the update puts a whole document in place.
func (u *Update) IsReplacement() bool { return u.operators == nil }

// apply makes the new version of a document, and the description of the change
// that a change stream shows (nil for a replacement).
func (u *Update) apply(old bson.Raw, query *Filter) (raw, description bson.Raw, err error) {
	if u.IsReplacement() {
		raw, err = u.replace(old)
		return raw, nil, err
	}
	doc, err := decode(old)
	if err != nil {
		return nil, nil, err
	}
	changes, err := mongokit.Apply(doc, query.doc, bsonkit.Clone(u.operators), false, u.arrayFilters)
	if err != nil {
		return nil, nil, updateError(err)
	}
	if raw, err = encode(doc); err != nil {
		return nil, nil, err
	}
	if raw, err = checkUpdated(raw, old.Lookup("_id")); err != nil {
		return nil, nil, err
	}
	if !bytes.Equal(raw, old) {
		description, err = describe(changes)
	}
	return raw, description, err
}

func (u *Update) replace(old bson.Raw) (bson.Raw, error) {
	if err := checkStorable(u.replacement); err != nil {
		return nil, err
	}
	id := old.Lookup("_id")
	if own, err := u.replacement.LookupErr("_id"); err == nil && !sameKey(own, id) {
		return nil, immutableID()
	}
	return idFirst(u.replacement, id)
}

func checkUpdated(raw bson.Raw, id bson.RawValue) (bson.Raw, error) {
	if len(raw) > MaxDocumentSize {
		return nil, Errorf(17419, "Resulting document after update is larger than %d", MaxDocumentSize)
	}
	if !shallow(raw, maxNesting) {
		return nil, Errorf(CodeOverflow, "Document exceeds maximum nesting depth of %d", maxNesting)
	}
	if now, err := raw.LookupErr("_id"); err != nil || !sameKey(now, id) {
		return nil, immutableID()
	}
	return raw, nil
}

func sameKey(a, b bson.RawValue) bool { return bytes.Equal(AppendKey(nil, a), AppendKey(nil, b)) }

func immutableID() *Error {
	return Errorf(CodeImmutableField, "Performing an update on the path '_id' would modify the immutable field '_id'")
}

func updateError(err error) error {
	if strings.Contains(err.Error(), "conflicting key") {
		return Errorf(40, "Updating the path would create a conflict: %s", err)
	}
	return Errorf(CodeBadValue, "%s", err)
}

// upsert makes the document to insert where none matched.
func (u *Update) upsert(query *Filter) (bson.Raw, error) {
	base, err := mongokit.Extract(query.doc)
	if err != nil {
		return nil, Errorf(CodeBadValue, "%s", err)
	}
	if u.IsReplacement() {
		return u.upsertReplacement(base)
	}
	if _, err := mongokit.Apply(base, query.doc, bsonkit.Clone(u.operators), true, u.arrayFilters); err != nil {
		return nil, updateError(err)
	}
	raw, err := encode(base)
	if err != nil {
		return nil, err
	}
	return withID(raw)
}

func (u *Update) upsertReplacement(base *bsonv1.D) (bson.Raw, error) {
	id := bsonkit.Get(base, "_id")
	own, err := u.replacement.LookupErr("_id")
	if id == bsonkit.Missing {
		return withID(u.replacement)
	}
	wanted, encErr := encodeValue(id)
	if encErr != nil {
		return nil, encErr
	}
	if err == nil && !sameKey(own, wanted) {
		return nil, immutableID()
	}
	if err := checkStorable(u.replacement); err != nil {
		return nil, err
	}
	return idFirst(u.replacement, wanted)
}

// describe makes {updatedFields, removedFields}.
func describe(changes *mongokit.Changes) (bson.Raw, error) {
	updated, removed := bsonv1.D{}, bsonv1.A{}
	paths := make([]string, 0, len(changes.Changed))
	for path := range changes.Changed {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		if value := changes.Changed[path]; value == bsonkit.Missing {
			removed = append(removed, path)
		} else {
			updated = append(updated, bsonv1.E{Key: path, Value: value})
		}
	}
	return encode(&bsonv1.D{{Key: "updatedFields", Value: updated}, {Key: "removedFields", Value: removed}})
}
