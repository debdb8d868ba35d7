package store

import (
	"fmt"
	"strconv"
	"strings"

	bsonv1 "go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// MaxDocumentSize is the largest document that is stored: 16 MiB.
const MaxDocumentSize = 16 << 20

// valuesAt gives the values at a path as an index sees them: arrays on the way
// and at the end stand for their elements. A missing value is one of type 0,
// which sorts and indexes as null.
func valuesAt(doc bson.Raw, path string) (values []bson.RawValue, found bool) {
	head, rest, deeper := strings.Cut(path, ".")
	v, err := doc.LookupErr(head)
	if err != nil {
		return []bson.RawValue{{}}, false
	}
	if !deeper {
		return expand(v), true
	}
	return valuesIn(v, rest)
}

func valuesIn(v bson.RawValue, path string) ([]bson.RawValue, bool) {
	switch v.Type {
	case bson.TypeEmbeddedDocument:
		return valuesAt(bson.Raw(v.Value), path)
	case bson.TypeArray:
		return valuesInArray(bson.Raw(v.Value), path)
	default:
		return []bson.RawValue{{}}, false
	}
}

func valuesInArray(array bson.Raw, path string) ([]bson.RawValue, bool) {
	head, rest, deeper := strings.Cut(path, ".")
	if _, err := strconv.Atoi(head); err == nil {
		v, err := array.LookupErr(head)
		switch {
		case err != nil:
		case !deeper:
			return expand(v), true
		default:
			return valuesIn(v, rest)
		}
	}
	items, err := array.Values()
	if err != nil {
		return []bson.RawValue{{}}, false
	}
	var all []bson.RawValue
	found := false
	for _, item := range items {
		if item.Type != bson.TypeEmbeddedDocument {
			continue
		}
		values, ok := valuesAt(bson.Raw(item.Value), path)
		all, found = append(all, values...), found || ok
	}
	if len(all) == 0 {
		return []bson.RawValue{{}}, false
	}
	return all, found
}

func expand(v bson.RawValue) []bson.RawValue {
	if v.Type != bson.TypeArray {
		return []bson.RawValue{v}
	}
	items, err := bson.Raw(v.Value).Values()
	if err != nil || len(items) == 0 {
		return []bson.RawValue{v}
	}
	return items
}

// decode turns raw into the form that lungo works on.
func decode(raw bson.Raw) (*bsonv1.D, error) {
	d := bsonv1.D{}
	if err := bsonv1.Unmarshal(raw, &d); err != nil {
		return nil, Errorf(CodeBadValue, "decode document: %s", err)
	}
	return &d, nil
}

// decodeFields decodes only the fields named, so that a look at one field of an
// event doesn't cost its thousands of recipients. Nil means all.
func decodeFields(raw bson.Raw, fields map[string]bool) (*bsonv1.D, error) {
	if fields == nil {
		return decode(raw)
	}
	elements, err := raw.Elements()
	if err != nil {
		return nil, Errorf(CodeBadValue, "decode document: %s", err)
	}
	d := make(bsonv1.D, 0, len(fields))
	for _, e := range elements {
		if !fields[e.Key()] {
			continue
		}
		v, err := decodeValue(e.Value())
		if err != nil {
			return nil, err
		}
		d = append(d, bsonv1.E{Key: e.Key(), Value: v})
	}
	return &d, nil
}

func decodeValue(v bson.RawValue) (any, error) {
	raw, err := bson.Marshal(bson.D{{Key: "v", Value: v}})
	if err != nil {
		return nil, Errorf(CodeBadValue, "decode value: %s", err)
	}
	d, err := decode(raw)
	if err != nil || len(*d) == 0 {
		return nil, err
	}
	return (*d)[0].Value, nil
}

func encode(d *bsonv1.D) (bson.Raw, error) {
	raw, err := bsonv1.Marshal(d)
	if err != nil {
		return nil, Errorf(CodeBadValue, "encode document: %s", err)
	}
	return bson.Raw(raw), nil
}

func encodeValue(v any) (bson.RawValue, error) {
	raw, err := encode(&bsonv1.D{{Key: "v", Value: v}})
	if err != nil {
		return bson.RawValue{}, err
	}
	return raw.Lookup("v"), nil
}

// shellDocument prints a document the way a server does in its messages.
func shellDocument(raw bson.Raw) string {
	elements, _ := raw.Elements()
	if len(elements) == 0 {
		return "{}"
	}
	parts := make([]string, len(elements))
	for i, e := range elements {
		parts[i] = e.Key() + ": " + shellValue(e.Value())
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

func shellValue(v bson.RawValue) string {
	switch v.Type {
	case bson.TypeString:
		return strconv.Quote(v.StringValue())
	case bson.TypeInt32:
		return strconv.Itoa(int(v.Int32()))
	case bson.TypeInt64:
		return strconv.FormatInt(v.Int64(), 10)
	case bson.TypeNull:
		return "null"
	case bson.TypeBoolean:
		return strconv.FormatBool(v.Boolean())
	case bson.TypeObjectID:
		return fmt.Sprintf("ObjectId('%s')", v.ObjectID().Hex())
	case bson.TypeEmbeddedDocument:
		return shellDocument(bson.Raw(v.Value))
	default:
		return v.String()
	}
}

// ShellDocument prints a document the way a server does in its messages.
func ShellDocument(raw bson.Raw) string { return shellDocument(raw) }

// ShellValue prints a value the way a server does in its messages.
func ShellValue(v bson.RawValue) string { return shellValue(v) }

// withID puts _id first, and makes one where there is none. It checks what a
// server checks of a document to store.
func withID(doc bson.Raw) (bson.Raw, error) {
	if err := checkStorable(doc); err != nil {
		return nil, err
	}
	id, err := doc.LookupErr("_id")
	if err != nil {
		id = bson.RawValue{Type: bson.TypeObjectID}
		oid := bson.NewObjectID()
		id.Value = oid[:]
	} else if err := checkID(id); err != nil {
		return nil, err
	}
	return idFirst(doc, id)
}

func idFirst(doc bson.Raw, id bson.RawValue) (bson.Raw, error) {
	elements, err := doc.Elements()
	if err != nil {
		return nil, Errorf(CodeBadValue, "decode document: %s", err)
	}
	if len(elements) > 0 && elements[0].Key() == "_id" {
		return doc, nil
	}
	d := bson.D{{Key: "_id", Value: id}}
	for _, e := range elements {
		if e.Key() != "_id" {
			d = append(d, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	raw, err := bson.Marshal(d)
	if err != nil {
		return nil, Errorf(CodeBadValue, "encode document: %s", err)
	}
	return raw, nil
}
