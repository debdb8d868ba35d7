package outbox

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// maxFaults bounds a reason: a list of 100,000 bad recipients is as clear after the first few.
const maxFaults = 20

// decoder reads one document. It takes what can only mean one thing (null for an absent field, a whole number of
// any numeric type for the hash, as the shell writes it) and names every other fault.
type decoder struct {
	event   protocol.Event
	faults  []protocol.Fault
	seen    map[string]bool
	without string // a required field that was left out of the query
}

// decode answers the event in a document, or everything that is wrong with it: then the event has what could be
// read. Neither aliases doc.
func decode(doc []byte) (*protocol.Event, *protocol.ValidationError) {
	return (&decoder{}).decode(doc)
}

// decodeContent decodes a document that was read without its recipients.
func decodeContent(doc []byte) (*protocol.Event, *protocol.ValidationError) {
	return (&decoder{without: "to"}).decode(doc)
}

func (d *decoder) decode(doc []byte) (*protocol.Event, *protocol.ValidationError) {
	d.seen = make(map[string]bool, len(fields))
	err := eachElement(doc, func(key string, v bsoncore.Value) error {
		read, known := fields[key]
		if !known || v.Type == bsoncore.TypeNull && !required[key] {
			return nil
		}
		d.seen[key] = true
		read(d, v)
		return nil
	})
	if err != nil {
		d.fault("", "%v", err)
		return &d.event, &protocol.ValidationError{Faults: d.faults}
	}
	for key := range required {
		if !d.seen[key] && key != d.without {
			d.fault("/"+key, "is missing")
		}
	}
	d.limits()
	if len(d.faults) > 0 {
		return &d.event, &protocol.ValidationError{Faults: d.faults}
	}
	return &d.event, nil
}

var required = map[string]bool{"_id": true, "to": true, "type": true, "data": true, "time": true}

// fields reads each field of a document; others are ignored.
var fields = map[string]func(*decoder, bsoncore.Value){
	"_id":         (*decoder).readID,
	"to":          (*decoder).readTo,
	"data":        (*decoder).readData,
	"hash":        (*decoder).readHash,
	"type":        func(d *decoder, v bsoncore.Value) { d.text(&d.event.Type, "/type", v) },
	"source":      func(d *decoder, v bsoncore.Value) { d.text(&d.event.Source, "/source", v) },
	"subject":     func(d *decoder, v bsoncore.Value) { d.text(&d.event.Subject, "/subject", v) },
	"key":         func(d *decoder, v bsoncore.Value) { d.text(&d.event.Key, "/key", v) },
	"traceparent": func(d *decoder, v bsoncore.Value) { d.text(&d.event.Traceparent, "/traceparent", v) },
	"time":        func(d *decoder, v bsoncore.Value) { d.date(&d.event.Time, "/time", v) },
	"expiresAt":   func(d *decoder, v bsoncore.Value) { d.date(&d.event.ExpiresAt, "/expiresAt", v) },
	"ephemeral":   func(d *decoder, v bsoncore.Value) { d.event.Ephemeral = d.boolean("/ephemeral", v) },
	"notify":      func(d *decoder, v bsoncore.Value) { d.event.SkipNotify = !d.boolean("/notify", v) },
}

// limits adds what protocol finds, but nothing at a place that has a fault already.
func (d *decoder) limits() {
	if d.without == "to" {
		d.event.To = []protocol.UserID{"-"}
		defer func() { d.event.To = nil }()
	}
	var invalid *protocol.ValidationError
	if !errors.As(d.event.Validate(), &invalid) {
		return
	}
	for _, f := range invalid.Faults {
		if !d.faulty(f.Pointer) {
			d.fault(f.Pointer, "%s", f.Message)
		}
	}
}

// faulty says whether there is a fault at a place or inside it.
func (d *decoder) faulty(pointer string) bool {
	for _, f := range d.faults {
		if f.Pointer == pointer || strings.HasPrefix(f.Pointer, pointer+"/") {
			return true
		}
	}
	return false
}

func (d *decoder) fault(pointer, format string, args ...any) {
	if len(d.faults) < maxFaults {
		d.faults = append(d.faults, protocol.Fault{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
	}
}

func (d *decoder) wrongType(pointer, want string, v bsoncore.Value) {
	d.fault(pointer, "must be %s, not %s", want, typeName(v.Type))
}

func (d *decoder) readID(v bsoncore.Value) {
	s, ok := v.StringValueOK()
	if !ok {
		d.wrongType("/_id", "a string", v)
		return
	}
	id, err := protocol.ParseEventID(s)
	if err != nil {
		d.fault("/_id", "must be a UUID, hyphenated and in lower case")
		return
	}
	d.event.ID = id
}

func (d *decoder) readTo(v bsoncore.Value) {
	if v.Type != bsoncore.TypeArray {
		d.wrongType("/to", "an array of strings", v)
		return
	}
	seen := make(map[protocol.UserID]struct{})
	i := 0
	err := eachElement(v.Data, func(_ string, v bsoncore.Value) error {
		s, ok := v.StringValueOK()
		if !ok {
			d.wrongType("/to/"+strconv.Itoa(i), "a string", v)
		}
		i++
		user := protocol.UserID(s)
		if _, twice := seen[user]; ok && !twice {
			seen[user] = struct{}{}
			d.event.To = append(d.event.To, user)
		}
		return nil
	})
	if err != nil {
		d.fault("/to", "%v", err)
	}
}

func (d *decoder) readData(v bsoncore.Value) {
	if v.Type != bsoncore.TypeEmbeddedDocument {
		d.wrongType("/data", "a document", v)
		return
	}
	data, err := appendObject(make([]byte, 0, len(v.Data)), v.Data, 1)
	if err != nil {
		d.fault("/data", "%v", err)
		return
	}
	d.event.Data = data
}

func (d *decoder) readHash(v bsoncore.Value) {
	hash, ok := wholeNumber(v)
	switch {
	case !ok:
		d.wrongType("/hash", "a whole number", v)
	case hash < 0 || hash > math.MaxInt32:
		d.fault("/hash", "must be from 0 to %d, not %d", math.MaxInt32, hash)
	default:
		h := int32(hash)
		d.event.Hash = &h
	}
}

// wholeNumber reads a number without a fraction, of any numeric type.
func wholeNumber(v bsoncore.Value) (int64, bool) {
	switch v.Type {
	case bsoncore.TypeInt32:
		n, ok := v.Int32OK()
		return int64(n), ok
	case bsoncore.TypeInt64:
		return v.Int64OK()
	case bsoncore.TypeDouble:
		f, ok := v.DoubleOK()
		return int64(f), ok && f == math.Trunc(f) && math.Abs(f) < 1<<53
	}
	return 0, false
}

func (d *decoder) text(dst *string, pointer string, v bsoncore.Value) {
	s, ok := v.StringValueOK()
	if !ok {
		d.wrongType(pointer, "a string", v)
		return
	}
	*dst = s
}

func (d *decoder) date(dst *time.Time, pointer string, v bsoncore.Value) {
	ms, ok := v.DateTimeOK()
	if !ok {
		d.wrongType(pointer, "a date", v)
		return
	}
	t := time.UnixMilli(ms).UTC()
	if t.Year() < 1 || t.Year() > 9999 {
		d.fault(pointer, "is not in the years 1 to 9999")
		return
	}
	*dst = t
}

// boolean answers true where there is none: of the two fields one has that default, and a fault ends both.
func (d *decoder) boolean(pointer string, v bsoncore.Value) bool {
	b, ok := v.BooleanOK()
	if !ok {
		d.wrongType(pointer, "true or false", v)
		return true
	}
	return b
}

func typeName(t bsoncore.Type) string {
	switch t {
	case bsoncore.TypeEmbeddedDocument:
		return "a document"
	case bsoncore.TypeArray:
		return "an array"
	case bsoncore.TypeObjectID:
		return "an ObjectID"
	case bsoncore.TypeDateTime:
		return "a date"
	}
	return "a value of type " + t.String()
}

// partitionOf is where a document falls. What is no event falls to the partition of its hash, else of its key, else to 0.
func partitionOf(e *protocol.Event, sound bool, partitions int) int {
	if sound || e.Hash != nil || e.Key != "" {
		return protocol.Partition(e.PartitionHash(), partitions)
	}
	return 0
}
