package protocol

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// DecodeEvent reads one event as the HTTP API and the publish frame carry it:
// {id?, to, type, source?, subject?, data, key?, expiresAt?, ephemeral?, notify?, traceparent?}.
// Unknown members are ignored, null counts as absent, names are case-sensitive. What is wrong, types
// reserved for the system included, comes as one *ValidationError. The event does not alias b.
func DecodeEvent(b []byte) (*Event, error) {
	var f faults
	if !wellFormed(b, &f) {
		return nil, f.err()
	}
	e := decodeEvent(bytes.TrimLeft(b, " \t\r\n"), &f)
	if err := f.err(); err != nil {
		return nil, err
	}
	return e, nil
}

// DecodeEvents reads one event, or an array of 1 to MaxPublish. Pointers into an array begin with the
// element's index ("/0/to"). Any fault refuses the whole.
func DecodeEvents(b []byte) ([]*Event, error) {
	var f faults
	if !wellFormed(b, &f) {
		return nil, f.err()
	}
	b = bytes.TrimLeft(b, " \t\r\n")
	var events []*Event
	if b[0] == '[' {
		events = decodeArray(b, &f)
	} else {
		events = append(events, decodeEvent(b, &f))
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return events, nil
}

func decodeArray(b []byte, f *faults) []*Event {
	var events []*Event
	elements(b, func(raw json.RawMessage) bool {
		if len(events) == MaxPublish {
			f.prefix = ""
			f.add("", "has more than %d events", MaxPublish)
			return false
		}
		f.prefix = "/" + strconv.Itoa(len(events))
		events = append(events, decodeEvent(raw, f))
		return true
	})
	if len(events) == 0 {
		f.add("", "is an empty array, at least one event is needed")
	}
	return events
}

func wellFormed(b []byte, f *faults) bool {
	switch {
	case !utf8.Valid(b):
		f.add("", "is not valid UTF-8")
	case !json.Valid(b):
		f.add("", "is not valid JSON")
	default:
		return true
	}
	return false
}

// decodeEvent adds to f what is wrong; raw is valid JSON without leading space.
func decodeEvent(raw json.RawMessage, f *faults) *Event {
	e := &Event{}
	if !members(raw, func(name string, v json.RawMessage) {
		if set, ok := eventFields[name]; ok && !isNull(v) {
			set(e, v, f)
		}
	}) {
		f.add("", "must be a JSON object")
		return e
	}
	if ReservedType(e.Type) {
		f.add("/type", "must not begin with %q, which is reserved", reservedPrefix)
	}
	e.validate(f)
	return e
}

// eventFields decodes each member of an event's JSON.
var eventFields = map[string]func(e *Event, v json.RawMessage, f *faults){
	"id":          decodeID,
	"to":          decodeTo,
	"data":        func(e *Event, v json.RawMessage, _ *faults) { e.Data = slices.Clone(v) },
	"type":        func(e *Event, v json.RawMessage, f *faults) { decodeText(&e.Type, "/type", v, f) },
	"source":      func(e *Event, v json.RawMessage, f *faults) { decodeText(&e.Source, "/source", v, f) },
	"subject":     func(e *Event, v json.RawMessage, f *faults) { decodeText(&e.Subject, "/subject", v, f) },
	"key":         func(e *Event, v json.RawMessage, f *faults) { decodeText(&e.Key, "/key", v, f) },
	"traceparent": func(e *Event, v json.RawMessage, f *faults) { decodeText(&e.Traceparent, "/traceparent", v, f) },
	"expiresAt":   decodeExpiresAt,
	"ephemeral":   func(e *Event, v json.RawMessage, f *faults) { decodeBool(&e.Ephemeral, "/ephemeral", v, f) },
	"notify": func(e *Event, v json.RawMessage, f *faults) {
		notify := true
		decodeBool(&notify, "/notify", v, f)
		e.SkipNotify = !notify
	},
}

func decodeID(e *Event, v json.RawMessage, f *faults) {
	var s string
	if !decodeText(&s, "/id", v, f) {
		return
	}
	id, err := ParseEventID(s)
	if err != nil {
		f.add("/id", "must be a UUID, hyphenated and in lower case")
		return
	}
	e.ID = id
}

func decodeTo(e *Event, v json.RawMessage, f *faults) {
	e.To = nil
	if !elements(v, func(u json.RawMessage) bool {
		if isString(u) {
			e.To = append(e.To, UserID(text(u)))
		} else {
			f.add("/to/"+strconv.Itoa(len(e.To)), "must be a string")
			e.To = append(e.To, "")
		}
		return len(e.To) <= MaxRecipients // one too many is enough for Validate to see it
	}) {
		f.add("/to", "must be an array of user ids")
	}
}

func decodeExpiresAt(e *Event, v json.RawMessage, f *faults) {
	var s string
	if !decodeText(&s, "/expiresAt", v, f) {
		return
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		f.add("/expiresAt", "must be a time by RFC 3339, such as 2026-01-02T15:04:05Z")
		return
	}
	e.ExpiresAt = t.UTC()
}

func decodeText(dst *string, at string, v json.RawMessage, f *faults) bool {
	if !isString(v) {
		f.add(at, "must be a string")
		return false
	}
	*dst = text(v)
	return true
}

func decodeBool(dst *bool, at string, v json.RawMessage, f *faults) {
	switch string(v) {
	case "true":
		*dst = true
	case "false":
		*dst = false
	default:
		f.add(at, "must be true or false")
	}
}
