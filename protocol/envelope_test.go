package protocol_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lastmile-gateway/lastmile/protocol"
)

func TestNewEnvelope_body(t *testing.T) {
	t.Parallel()
	const want = `{"specversion":"1.0","id":"0192f0c1-2b3c-7d4e-8f50-123456789abc","source":"lastmile","type":"chat.message",` +
		`"time":"2026-03-04T04:06:07.089Z","subject":"room:42","data":{"text":"a < b && \"c\"","n":12345678901234567890.10}}`
	v := envelope(t, event())
	if string(v.Body) != want {
		t.Errorf("body\n%s\nwant\n%s", v.Body, want)
	}
	e := event()
	e.Source, e.Subject, e.Type = "user:ä\"\\\u2028", "", "<b>\t\x01"
	v = envelope(t, e)
	var back struct {
		Source, Type string
		Subject      *string
	}
	if err := json.Unmarshal(v.Body, &back); err != nil {
		t.Fatalf("%v: %s", err, v.Body)
	}
	if back.Source != e.Source || back.Type != e.Type || back.Subject != nil {
		t.Errorf("read back %+v from %s", back, v.Body)
	}
	if !bytes.Contains(v.Body, []byte("<b>")) {
		t.Errorf("< is escaped: %s", v.Body)
	}
}

func TestNewEnvelope_refusesWhatIsNoEvent(t *testing.T) {
	t.Parallel()
	e := event()
	e.ID = protocol.EventID{}
	if _, err := protocol.NewEnvelope(e); err == nil {
		t.Error("an event without id was taken")
	}
	for _, data := range []string{``, `[]`, `"x"`, `{`, `{"a":}`, `{} {}`, `null`} {
		e := event()
		e.Data = []byte(data)
		if v, err := protocol.NewEnvelope(e); err == nil {
			t.Errorf("data %q was taken: %s", data, v.Body)
		}
	}
}

// Numbers keep their digits: a browser that reads them with a big-number parser gets what was published.
func TestNewEnvelope_dataIsKeptToTheByte(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		`{"n":1.0,"big":9007199254740993,"exp":1E+2,"neg":-0.0}`, `{"a":"\u00e9\/ \\"}`, `{"b":1,"a":2,"b":3}`, "{\"raw\":\"\u2028\u2029<>&\"}", `{}`,
	} {
		e := event()
		e.Data = []byte(data)
		if v := envelope(t, e); !bytes.HasSuffix(v.Body, []byte(`"data":`+data+`}`)) {
			t.Errorf("data %s became %s", data, v.Body)
		}
	}
}

// Invalid UTF-8 can't come by a decoder; a document written by someone else may hold it, and a frame must not.
func TestCase_C03_invalidUTF8NeverReachesABody(t *testing.T) {
	t.Parallel()
	e := event()
	e.Data, e.Source = []byte("{\"x\":\"\xff\xfe\"}"), "s\xff"
	v := envelope(t, e)
	if bytes.Contains(v.Body, []byte{0xff}) || !json.Valid(v.Body) {
		t.Errorf("body %q", v.Body)
	}
	if err := e.Validate(); err == nil {
		t.Error("Validate lets it through")
	}
}

func TestEnvelope_expired(t *testing.T) {
	t.Parallel()
	now := testTime
	for name, c := range map[string]struct {
		v    protocol.Envelope
		want bool
	}{
		"for ever":          {protocol.Envelope{Time: now.Add(-time.Hour)}, false},
		"a moment before":   {protocol.Envelope{ExpiresAt: now.Add(1)}, false},
		"at the moment":     {protocol.Envelope{ExpiresAt: now}, true},
		"ephemeral, young":  {protocol.Envelope{Time: now.Add(-9 * time.Second), Ephemeral: true}, false},
		"ephemeral, old":    {protocol.Envelope{Time: now.Add(-10 * time.Second), Ephemeral: true}, true},
		"ephemeral, lapsed": {protocol.Envelope{Time: now, ExpiresAt: now, Ephemeral: true}, true},
	} {
		if got := c.v.Expired(now); got != c.want {
			t.Errorf("%s: expired %t", name, got)
		}
	}
}

func TestEnvelope_cloneSharesNothing(t *testing.T) {
	t.Parallel()
	encoded := protocol.Batch{Items: []protocol.Item{{Event: envelope(t, event()), Pairs: []protocol.Pair{{User: "a"}}}}}.AppendTo(nil)
	b, err := protocol.DecodeBatch(encoded)
	if err != nil {
		t.Fatal(err)
	}
	v := b.Items[0].Event
	c := v.Clone()
	want := bytes.Clone(v.Body)
	clear(encoded)
	if !bytes.Equal(c.Body, want) || c.ID != v.ID || c.Type != v.Type {
		t.Error("the clone changed with the batch's bytes")
	}
}

func TestEnvelope_bodyIsAlwaysJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent(t)
		v, err := protocol.NewEnvelope(e)
		if err != nil {
			t.Fatal(err)
		}
		var back struct {
			ID                    protocol.EventID
			Source, Type, Subject string
			Time                  time.Time
		}
		if err := json.Unmarshal(v.Body, &back); err != nil {
			t.Fatalf("%v: %s", err, v.Body)
		}
		if back.ID != e.ID || back.Type != e.Type || back.Subject != e.Subject || !back.Time.Equal(e.Time.Truncate(time.Millisecond)) {
			t.Fatalf("%+v from %s", back, v.Body)
		}
	})
}

// anyEvent draws a valid event.
func anyEvent(t *rapid.T) *protocol.Event {
	word := rapid.StringN(1, 30, 100).Filter(func(s string) bool { _, err := protocol.ParseUserID(s); return err == nil })
	data, err := json.Marshal(rapid.MapOfN(rapid.StringMatching(`[a-z]{1,8}`), rapid.String(), 0, 5).Draw(t, "data"))
	if err != nil {
		t.Fatal(err)
	}
	e := &protocol.Event{
		ID: protocol.NewEventID(), Type: word.Draw(t, "type"), Data: data,
		Time: time.UnixMilli(rapid.Int64Range(0, 1e13).Draw(t, "time")).UTC(), Ephemeral: rapid.Bool().Draw(t, "ephemeral"),
		SkipNotify: rapid.Bool().Draw(t, "skip"), Traceparent: rapid.StringMatching(`[0-9a-f-]{0,55}`).Draw(t, "trace"),
		To: rapid.SliceOfN(rapid.Map(word, func(s string) protocol.UserID { return protocol.UserID(s) }), 1, 5).Draw(t, "to"),
	}
	if rapid.Bool().Draw(t, "more") {
		e.Subject, e.Source, e.Key = word.Draw(t, "subject"), word.Draw(t, "source"), word.Draw(t, "key")
		e.ExpiresAt = time.UnixMilli(rapid.Int64Range(0, 1e13).Draw(t, "expires")).UTC()
	}
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	return e
}
