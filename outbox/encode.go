package outbox

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// maxDocument is what MongoDB takes as one document.
const maxDocument = 16 << 20

// encode makes the document of a valid, prepared event. It is built by hand since a list of 100,000 recipients
// costs nothing that way; names and types are those of schema/event.schema.json.
func encode(e *protocol.Event) (bson.Raw, error) {
	start, b := bsoncore.AppendDocumentStart(make([]byte, 0, 256+len(e.Data)*2+len(e.To)*48))
	b = bsoncore.AppendStringElement(b, "_id", e.ID.String())
	b = appendTo(b, e.To)
	b = bsoncore.AppendStringElement(b, "type", e.Type)
	b = appendText(b, "source", e.Source)
	b = appendText(b, "subject", e.Subject)
	b = bsoncore.AppendHeader(b, bsoncore.TypeEmbeddedDocument, "data")
	b, err := appendJSONObject(b, e.Data)
	if err != nil {
		return nil, fmt.Errorf("encode event %s: data: %w", e.ID, err)
	}
	b = appendText(b, "key", e.Key)
	b = bsoncore.AppendInt32Element(b, "hash", e.PartitionHash())
	b = bsoncore.AppendDateTimeElement(b, "time", e.Time.UnixMilli())
	if !e.ExpiresAt.IsZero() {
		b = bsoncore.AppendDateTimeElement(b, "expiresAt", e.ExpiresAt.UnixMilli())
	}
	if e.Ephemeral {
		b = bsoncore.AppendBooleanElement(b, "ephemeral", true)
	}
	if e.SkipNotify {
		b = bsoncore.AppendBooleanElement(b, "notify", false)
	}
	b = appendText(b, "traceparent", e.Traceparent)
	if b, err = bsoncore.AppendDocumentEnd(b, start); err != nil {
		return nil, fmt.Errorf("encode event %s: %w", e.ID, err)
	}
	if len(b) > maxDocument {
		return nil, &protocol.ValidationError{Faults: []protocol.Fault{{
			Message: fmt.Sprintf("is %d bytes long as a document, MongoDB takes at most %d: give it fewer recipients or less data", len(b), maxDocument),
		}}}
	}
	return b, nil
}

func appendTo(b []byte, users []protocol.UserID) []byte {
	at, b := bsoncore.AppendArrayElementStart(b, "to")
	for i, u := range users {
		b = bsoncore.AppendStringElement(b, strconv.Itoa(i), string(u))
	}
	b, _ = bsoncore.AppendArrayEnd(b, at) // fails only where no start was
	return b
}

func appendText(b []byte, key, value string) []byte {
	if value == "" {
		return b
	}
	return bsoncore.AppendStringElement(b, key, value)
}

var errNotUTF8 = errors.New("is not valid UTF-8")

func checkUTF8(b []byte) error {
	if !utf8.Valid(b) {
		return errNotUTF8
	}
	return nil
}
