package outbox_test

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/outbox/schema"
	"github.com/lastmile-gateway/lastmile/protocol"
)

func drawJSON(t *rapid.T, depth int) any {
	kinds := 6
	if depth > 3 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.String().Draw(t, "text")
	case 1:
		return json.Number(strconv.FormatInt(rapid.Int64().Draw(t, "integer"), 10))
	case 2:
		f := rapid.Float64().Filter(func(f float64) bool { return !math.IsInf(f, 0) }).Draw(t, "number")
		raw, _ := json.Marshal(f)
		return json.Number(raw)
	case 3:
		return rapid.SampledFrom([]any{true, false, nil, json.Number("0.1234567890123456789"), json.Number("123456789012345678901")}).Draw(t, "constant")
	case 4:
		list := make([]any, rapid.IntRange(0, 4).Draw(t, "items"))
		for i := range list {
			list[i] = drawJSON(t, depth+1)
		}
		return list
	}
	return drawObject(t, depth+1)
}

func drawObject(t *rapid.T, depth int) map[string]any {
	object := make(map[string]any)
	for range rapid.IntRange(0, 4).Draw(t, "members") {
		name := strings.ReplaceAll(rapid.String().Draw(t, "name"), "\x00", "0")
		object[name] = drawJSON(t, depth)
	}
	return object
}

func drawEvent(t *rapid.T) *protocol.Event {
	data, err := json.Marshal(drawObject(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	text := rapid.StringMatching(`[ -~äöü€]{0,40}`)
	e := &protocol.Event{
		Type: "t" + text.Draw(t, "type"), Source: text.Draw(t, "source"), Subject: text.Draw(t, "subject"),
		Key: text.Draw(t, "key"), Traceparent: text.Draw(t, "traceparent"), Data: data,
		Ephemeral: rapid.Bool().Draw(t, "ephemeral"), SkipNotify: rapid.Bool().Draw(t, "silent"),
	}
	for range rapid.IntRange(1, 5).Draw(t, "recipients") {
		e.To = append(e.To, protocol.UserID("u"+text.Draw(t, "user")))
	}
	if rapid.Bool().Draw(t, "expires") {
		e.ExpiresAt = time.UnixMilli(rapid.Int64Range(0, 1<<41).Draw(t, "expiresAt"))
	}
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	e.Prepare()
	return e
}

// What is encoded is decoded as it was, and a number keeps its value to the last digit.
func TestCodec_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := drawEvent(t)
		doc, err := outbox.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		got, fault := outbox.Decode(doc)
		if fault != nil {
			t.Fatal(fault)
		}
		if want, have := canonical(t, e.Data), canonical(t, got.Data); !reflect.DeepEqual(want, have) {
			t.Fatalf("data\n%s\nbecame\n%s", e.Data, got.Data)
		}
		got.Data = e.Data
		if diff := cmp.Diff(e, got); diff != "" {
			t.Fatal(diff)
		}
		content, fault := outbox.DecodeContent(doc)
		if fault != nil || content.To != nil || content.ID != e.ID {
			t.Fatalf("without recipients: %+v, %v", content, fault)
		}
	})
}

// canonical compares numbers by their digits, since 1.0 and 1 are one number.
func canonical(t *rapid.T, data []byte) any {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return digits(v)
}

func digits(v any) any {
	switch v := v.(type) {
	case json.Number:
		d, exponent := outbox.Significant(v.String())
		if d == "" {
			exponent = 0
		}
		return [2]any{strings.HasPrefix(v.String(), "-") && d != "", d + "e" + strconv.Itoa(exponent)}
	case []any:
		for i := range v {
			v[i] = digits(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = digits(v[k])
		}
	}
	return v
}

func TestCodec_NumbersInMongoDB(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]any{
		"1": int32(1), "-2147483648": int32(math.MinInt32), "2147483648": int64(1) << 31, "9223372036854775807": int64(math.MaxInt64),
		"1.5": 1.5, "1.0": 1.0, "-0": math.Copysign(0, -1), "0.30000000000000004": 0.30000000000000004, "1e22": 1e22, "5e-324": 5e-324,
		"100000000000000000000": 1e20,
	} {
		doc, err := outbox.FromJSON([]byte(`{"n":` + text + `}`))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got bson.D
		if err := bson.Unmarshal(doc, &got); err != nil || got[0].Value != want {
			t.Errorf("%s became %v (%T), %v", text, got[0].Value, got[0].Value, err)
		}
	}
	for _, text := range []string{"9223372036854775809", "0.12345678901234567890", "12345678901234567.5"} {
		doc, err := outbox.FromJSON([]byte(`{"n":` + text + `}`))
		if err != nil || bson.Raw(doc).Lookup("n").Type != bson.TypeDecimal128 {
			t.Errorf("%s: %v, type %s", text, err, bson.Raw(doc).Lookup("n").Type)
		}
	}
}

func TestCodec_RefusesWhatMongoDBCannotHold(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		"", "[]", "5", `{"a":`, `{"a":1}{`, `{"a":1e999}`, `{"a\u0000b":1}`, "{\"a\":\"\xff\"}",
		strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200),
		`{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "}",
	} {
		if _, err := outbox.FromJSON([]byte(data)); err == nil {
			t.Errorf("%.40q is taken", data)
		}
	}
	e := &protocol.Event{To: make([]protocol.UserID, 100_000), Type: "t", Data: json.RawMessage(`{}`)}
	for i := range e.To {
		e.To[i] = protocol.UserID(strconv.Itoa(i) + strings.Repeat("ü", 80))
	}
	e.Prepare()
	if _, err := outbox.Encode(e); err == nil || !strings.Contains(err.Error(), "fewer recipients") {
		t.Errorf("a document of 17 MB: %v", err)
	}
}

// The schema that ships says yes to whatever Publish writes.
func TestSchema_HoldsForWhatIsWritten(t *testing.T) {
	t.Parallel()
	s := compileSchema(t)
	rapid.Check(t, func(t *rapid.T) {
		doc, err := outbox.Encode(drawEvent(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(asJSON(t, doc)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSchema_RefusesWhatTheDecoderRefuses(t *testing.T) {
	t.Parallel()
	s := compileSchema(t)
	sound := bson.D{
		{Key: "_id", Value: protocol.NewEventID().String()}, {Key: "to", Value: bson.A{"a"}}, {Key: "type", Value: "t"},
		{Key: "data", Value: bson.D{}}, {Key: "time", Value: time.Now()},
	}
	for name, change := range map[string]bson.E{
		"id": {Key: "_id", Value: "x"}, "nobody": {Key: "to", Value: bson.A{}}, "empty user": {Key: "to", Value: bson.A{""}},
		"type": {Key: "type", Value: ""}, "data": {Key: "data", Value: bson.A{}}, "time": {Key: "time", Value: 5},
		"hash": {Key: "hash", Value: -1}, "ephemeral": {Key: "ephemeral", Value: 1}, "subject": {Key: "subject", Value: "a\nb"},
		"expiresAt": {Key: "expiresAt", Value: "soon"}, "key": {Key: "key", Value: strings.Repeat("x", 257)},
	} {
		doc := bson.D{}
		for _, e := range append(sound, change) {
			if e.Key != change.Key || cmp.Equal(e.Value, change.Value) {
				doc = append(doc, e)
			}
		}
		raw, err := bson.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if _, fault := outbox.Decode(raw); fault == nil {
			t.Errorf("%s: the decoder takes it", name)
		}
		if err := s.Validate(asJSON(t, raw)); err == nil {
			t.Errorf("%s: the schema takes it", name)
		}
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema.Event))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(schema.ID, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(schema.ID)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asJSON is a document as the schema sees it: dates as text.
func asJSON(t interface{ Fatal(...any) }, doc bson.Raw) any {
	text, err := outbox.ToJSON(doc)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// FuzzDecode: any bytes are an event, or faults with a reason; and what is an event can be written again.
func FuzzDecode(f *testing.F) {
	e := &protocol.Event{To: []protocol.UserID{"a", "b"}, Type: "t", Subject: "s", Data: json.RawMessage(`{"a":[1,{"b":2.5}],"c":"ü"}`)}
	e.Prepare()
	doc, err := outbox.Encode(e)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(doc))
	f.Add([]byte(doc[:len(doc)-9]))
	f.Add([]byte{5, 0, 0, 0, 0})
	f.Add([]byte{})
	odd, err := bson.Marshal(bson.D{{Key: "_id", Value: bson.NewObjectID()}, {Key: "to", Value: bson.A{1, bson.Null{}}}, {Key: "hash", Value: 5.5},
		{Key: "data", Value: bson.D{{Key: "d", Value: bson.NewDecimal128(1, 2)}, {Key: "u", Value: bson.Undefined{}}, {Key: "r", Value: bson.Regex{}}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(odd))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, fault := outbox.Decode(b)
		if fault != nil {
			if len(fault.Faults) == 0 || fault.Error() == "" {
				t.Error("a fault without a reason")
			}
			return
		}
		if _, err := protocol.NewEnvelope(e); err != nil {
			t.Errorf("an event without an envelope: %v", err)
		}
		if _, err := outbox.Encode(e); err != nil && !strings.Contains(err.Error(), "as a document") {
			t.Errorf("an event that can't be encoded: %v", err)
		}
	})
}

func BenchmarkCodec(b *testing.B) {
	e := &protocol.Event{To: []protocol.UserID{"alice", "bob"}, Type: "chat.message", Subject: "room:42",
		Data: json.RawMessage(`{"room":"42","text":"hello, world","from":"alice","n":[1,2,3]}`)}
	e.Prepare()
	doc, err := outbox.Encode(e)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := outbox.Encode(e); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, fault := outbox.Decode(doc); fault != nil {
				b.Fatal(fault)
			}
		}
	})
}
