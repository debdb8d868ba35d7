package protocol_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// pointers are where err finds faults, in order.
func pointers(t testing.TB, err error) []string {
	t.Helper()
	var v *protocol.ValidationError
	if !errors.As(err, &v) {
		t.Fatalf("%v is no *ValidationError", err)
	}
	var out []string
	for _, f := range v.Faults {
		if f.Message == "" {
			t.Errorf("fault at %q says nothing", f.Pointer)
		}
		out = append(out, f.Pointer)
	}
	return out
}

func TestDecodeEvent_everyField(t *testing.T) {
	t.Parallel()
	got, err := protocol.DecodeEvent([]byte(` {"id":"0192f0c1-2b3c-7d4e-8f50-123456789abc","to":["alice","b\u00f6b"],"type":"chat.message",
		"source":"app","subject":"room:42","data":{"n":1.0, "deep":[{"to":["x"]}]},"key":"k","expiresAt":"2026-03-04T05:06:07+01:00",
		"ephemeral":true,"notify":false,"traceparent":"00-a-b-01","TO":["nobody"],"unknown":{"type":3},"Type":7}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &protocol.Event{
		ID: testID, To: []protocol.UserID{"alice", "böb"}, Type: "chat.message", Source: "app", Subject: "room:42",
		Data: json.RawMessage(`{"n":1.0, "deep":[{"to":["x"]}]}`), Key: "k", ExpiresAt: time.Date(2026, 3, 4, 4, 6, 7, 0, time.UTC),
		Ephemeral: true, SkipNotify: true, Traceparent: "00-a-b-01",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeEvent_namesEveryFault(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	deep := strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65)
	for name, c := range map[string]struct {
		json string
		want []string
	}{
		"nothing there":      {`{}`, []string{"/to", "/type", "/data"}},
		"null is absent":     {`{"to":null,"type":null,"data":null,"id":null,"notify":null}`, []string{"/to", "/type", "/data"}},
		"wrong types":        {`{"id":1,"to":"alice","type":[],"source":1,"subject":{},"data":[],"key":true,"expiresAt":0,"ephemeral":"no","notify":1,"traceparent":2}`, []string{"/id", "/to", "/type", "/source", "/subject", "/key", "/expiresAt", "/ephemeral", "/notify", "/traceparent", "/data"}},
		"recipients":         {`{"to":["a","",3,"` + long + `","\u0000","b"],"type":"t","data":{}}`, []string{"/to/2", "/to/1", "/to/3", "/to/4"}},
		"no recipient":       {`{"to":[],"type":"t","data":{}}`, []string{"/to"}},
		"too long":           {`{"to":["a"],"type":"` + long + `","source":"` + long + `","subject":"` + long + `","key":"` + long + `","traceparent":"` + long + `","data":{}}`, []string{"/type", "/source", "/subject", "/key", "/traceparent"}},
		"id in upper case":   {`{"to":["a"],"type":"t","data":{},"id":"0192F0C1-2B3C-7D4E-8F50-123456789ABC"}`, []string{"/id"}},
		"nil id":             {`{"to":["a"],"type":"t","data":{},"id":"00000000-0000-0000-0000-000000000000"}`, []string{"/id"}},
		"bad time":           {`{"to":["a"],"type":"t","data":{},"expiresAt":"tomorrow"}`, []string{"/expiresAt"}},
		"reserved type":      {`{"to":["a"],"type":"lastmile.probe","data":{}}`, []string{"/type"}},
		"data is a string":   {`{"to":["a"],"type":"t","data":"{}"}`, []string{"/data"}},
		"data too deep":      {`{"to":["a"],"type":"t","data":` + deep + `}`, []string{"/data"}},
		"number too great":   {`{"to":["a"],"type":"t","data":{"n":-1e400}}`, []string{"/data"}},
		"NUL in a name":      {`{"to":["a"],"type":"t","data":{"x":{"a\u0000b":1}}}`, []string{"/data"}},
		"no object":          {`"event"`, []string{""}},
		"an array":           {`[{"to":["a"],"type":"t","data":{}}]`, []string{""}},
		"no JSON":            {`{"to":["a"],"type":"t","data":{}`, []string{""}},
		"two values":         {`{"to":["a"],"type":"t","data":{}} {}`, []string{""}},
		"nothing":            {``, []string{""}},
		"control characters": {`{"to":["a"],"type":"a\nb","subject":"\u0007","data":{}}`, []string{"/type", "/subject"}},
	} {
		e, err := protocol.DecodeEvent([]byte(c.json))
		if e != nil || err == nil {
			t.Errorf("%s: taken: %+v", name, e)
			continue
		}
		if got := pointers(t, err); !slices.Equal(got, c.want) {
			t.Errorf("%s: faults at %q, want %q (%v)", name, got, c.want, err)
		}
	}
}

func TestDecodeEvent_allowsWhatOnlyLooksBad(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		`{"to":["a","a"],"type":"t","data":{"text":"\u0000 in a value","path":"a\\u0000"}}`,
		`{"to":["a"],"type":"t","data":{"a\\u0000":1,"":{"$set":1,"a.b":-0.5e-300}}}`,
		"\n\t{\"to\" : [ \"a\" ] , \"type\" : \"t\" , \"data\" : { } }\r\n",
		`{"to":["a"],"type":"t","data":{},"source":"","subject":"","key":""}`,
	} {
		if _, err := protocol.DecodeEvent([]byte(s)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestDecodeEvent_limitsOfSize(t *testing.T) {
	t.Parallel()
	data := func(n int) string { return `{"x":"` + strings.Repeat("y", n-8) + `"}` }
	wrap := func(data string) []byte { return []byte(`{"to":["a"],"type":"t","data":` + data + `}`) }
	if _, err := protocol.DecodeEvent(wrap(data(protocol.MaxData))); err != nil {
		t.Error(err)
	}
	spaced := strings.Replace(data(protocol.MaxData), ":", " : \n", 1)
	if _, err := protocol.DecodeEvent(wrap(spaced)); err != nil {
		t.Errorf("white space counts: %v", err)
	}
	if _, err := protocol.DecodeEvent(wrap(data(protocol.MaxData + 1))); err == nil {
		t.Error("one byte too many was taken")
	}
	users := func(n int) []byte {
		return []byte(`{"to":["u"` + strings.Repeat(`,"u"`, n-1) + `],"type":"t","data":{}}`)
	}
	if _, err := protocol.DecodeEvent(users(protocol.MaxRecipients)); err != nil {
		t.Error(err)
	}
	if _, err := protocol.DecodeEvent(users(protocol.MaxRecipients + 1)); err == nil || !slices.Equal(pointers(t, err), []string{"/to"}) {
		t.Errorf("one recipient too many: %v", err)
	}
}

func TestValidate_boundsItsList(t *testing.T) {
	t.Parallel()
	e := event()
	e.To = make([]protocol.UserID, 5000)
	if n := len(pointers(t, e.Validate())); n != 100 {
		t.Errorf("%d faults listed, want 100", n)
	}
	e = event()
	e.Time, e.ExpiresAt = time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-3, 1, 1, 0, 0, 0, 0, time.UTC)
	if got := pointers(t, e.Validate()); !slices.Equal(got, []string{"/time", "/expiresAt"}) {
		t.Errorf("faults at %q", got)
	}
}

func TestDecodeEvents(t *testing.T) {
	t.Parallel()
	const good = `{"to":["a"],"type":"t","data":{}}`
	many := func(n int) []byte { return []byte("[" + strings.TrimSuffix(strings.Repeat(good+",", n), ",") + "]") }
	for name, c := range map[string]struct {
		json []byte
		n    int
		want []string
	}{
		"one object":    {[]byte(good), 1, nil},
		"array of one":  {many(1), 1, nil},
		"array of 1000": {many(protocol.MaxPublish), 1000, nil},
		"one too many":  {many(protocol.MaxPublish + 1), 0, []string{""}},
		"empty":         {[]byte(` [ ] `), 0, []string{""}},
		"second bad":    {[]byte(`[` + good + `,{"to":["",7],"type":"t","data":{}},5]`), 0, []string{"/1/to/1", "/1/to/0", "/2"}},
		"object bad":    {[]byte(`{"type":"t","data":{},"to":[1]}`), 0, []string{"/to/0"}},
		"not UTF-8":     {[]byte("[\"\xff\"]"), 0, []string{""}},
		"not JSON":      {[]byte("nope"), 0, []string{""}},
	} {
		events, err := protocol.DecodeEvents(c.json)
		if len(events) != c.n || (err != nil) != (c.want != nil) {
			t.Errorf("%s: %d events, %v", name, len(events), err)
		} else if err != nil {
			if got := pointers(t, err); !slices.Equal(got, c.want) {
				t.Errorf("%s: faults at %q, want %q", name, got, c.want)
			}
		}
	}
}

func TestEvent_jsonRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent(t)
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		back, err := protocol.DecodeEvent(b)
		if err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		back.Time = e.Time // not part of what a publisher sends
		if diff := cmp.Diff(e, back, cmp.Comparer(func(a, b json.RawMessage) bool { return sameJSON(a, b) })); diff != "" {
			t.Fatal(diff)
		}
	})
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && fmt.Sprint(x) == fmt.Sprint(y)
}

func FuzzDecodeEvent(f *testing.F) {
	for _, s := range []string{
		`{"to":["a"],"type":"t","data":{"x":[1,{"y":"z\\\"}"}]}}`, `[{"to":["a"],"type":"t","data":{}}]`, `{"a\u0022":1,"to":[`, `[`, `{}`, ``, ` `, `"\\"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		events, err := protocol.DecodeEvents(b)
		if err != nil {
			pointers(t, err)
			return
		}
		for _, e := range events {
			e.Prepare()
			if err := e.Validate(); err != nil {
				t.Fatalf("decoded but not valid: %v", err)
			}
			if v := envelope(t, e); !json.Valid(v.Body) {
				t.Fatalf("body is no JSON: %s", v.Body)
			}
		}
	})
}
