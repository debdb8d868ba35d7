package store

import (
	"strings"

	bsonv1 "go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// maxNesting is how deep a stored document may be, itself counted: 200, which messages may have, less 20.
const maxNesting = 180

// checkStorable refuses what a server refuses to insert.
func checkStorable(doc bson.Raw) error {
	if len(doc) > MaxDocumentSize {
		return Errorf(CodeBadValue, "object to insert too large. size in bytes: %d, max size: %d", len(doc), MaxDocumentSize)
	}
	elements, err := doc.Elements()
	if err != nil {
		return Errorf(CodeBadValue, "decode document: %s", err)
	}
	for _, e := range elements {
		if strings.HasPrefix(e.Key(), "$") {
			return Errorf(CodeBadValue, "Document can't have $ prefixed field names: %s", e.Key())
		}
	}
	if !shallow(doc, maxNesting) {
		return Errorf(CodeOverflow, "cannot insert document because it exceeds %d levels of nesting", maxNesting)
	}
	return nil
}

// shallow says whether a document has no more than so many levels.
func shallow(doc bson.Raw, levels int) bool {
	if levels == 0 {
		return false
	}
	elements, err := doc.Elements()
	if err != nil {
		return false
	}
	for _, e := range elements {
		v := e.Value()
		if (v.Type == bson.TypeEmbeddedDocument || v.Type == bson.TypeArray) && !shallow(bson.Raw(v.Value), levels-1) {
			return false
		}
	}
	return true
}

func checkID(id bson.RawValue) error {
	switch id.Type {
	case bson.TypeArray, bson.TypeRegex, bson.TypeUndefined:
		return Errorf(CodeBadValue, "can't use a %s for _id", typeName(id.Type))
	case bson.TypeEmbeddedDocument:
		elements, err := bson.Raw(id.Value).Elements()
		if err != nil {
			return Errorf(CodeBadValue, "decode _id: %s", err)
		}
		for _, e := range elements {
			if strings.HasPrefix(e.Key(), "$") {
				return Errorf(CodeDollarField, "_id fields may not contain '$'-prefixed fields: %s is not valid for storage.", e.Key())
			}
		}
	}
	return nil
}

// checkAssigned refuses names in an update's values that begin with a dollar, which an insert may store at any
// depth but the first: a server does so before version 5, so that nobody gets used to them here.
func checkAssigned(path string, value any) error {
	switch v := value.(type) {
	case bsonv1.D:
		for _, e := range v {
			inner := path + "." + e.Key
			if strings.HasPrefix(e.Key, "$") && e.Key != "$ref" && e.Key != "$id" && e.Key != "$db" {
				return Errorf(CodeDollarField, "The dollar ($) prefixed field '%s' in '%s' is not valid for storage.", e.Key, inner)
			}
			if err := checkAssigned(inner, e.Value); err != nil {
				return err
			}
		}
	case bsonv1.A:
		for _, item := range v {
			if err := checkAssigned(path, item); err != nil {
				return err
			}
		}
	}
	return nil
}
