package protocol_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lastmile-gateway/lastmile/protocol"
)

var update = flag.Bool("update", false, "write the golden frames anew")

func TestServerFrames_golden(t *testing.T) {
	t.Parallel()
	position := protocol.Position{Epoch: testEpoch, Seq: 41, ID: testID}
	var events protocol.EventsFrame
	events.Add(42, false, []byte(`{"id":"a"}`))
	events.Add(43, true, []byte(`{"id":"b"}`))
	events.Add(0, false, []byte(`{"id":"c"}`))
	for name, got := range map[string][]byte{
		"welcome": protocol.Welcome{
			N: 1, Session: "abcdefghijkl", User: "älice \"<a>\"", Instance: "s1-abcdefghijkl", Position: position, Recovered: true,
			PingInterval: 25 * time.Second, ReconnectWithin: 1500 * time.Millisecond, MaxFrame: protocol.MaxClientFrame, TokenExpiresAt: testTime,
		}.AppendTo(nil),
		"welcome_fresh": protocol.Welcome{
			N: 2, Session: "abcdefghijkl", User: "alice", Instance: "s1-abcdefghijkl", Position: protocol.Position{Epoch: testEpoch, Seq: 1},
			PingInterval: 25 * time.Second, ReconnectWithin: 500 * time.Millisecond, MaxFrame: 1000,
		}.AppendTo(nil),
		"events":    events.Bytes(),
		"published": protocol.Published{Ref: "7", ID: testID}.AppendTo(nil),
		"error":     protocol.ErrorFrame{Ref: "7", Code: protocol.ErrorBadEvent, Message: "/to must not be empty"}.AppendTo(nil),
		"error_no_ref": protocol.ErrorFrame{
			Code: protocol.ErrorBadFrame, Message: "line\nbreak",
		}.AppendTo(nil),
		"goaway": protocol.Goaway{ReconnectAfter: 250 * time.Millisecond, Reason: "drain"}.AppendTo(nil),
		"pong":   protocol.Pong{}.AppendTo(nil),
	} {
		golden(t, name, got)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if !json.Valid(got) {
		t.Errorf("%s is no JSON: %s", name, got)
	}
	path := filepath.Join("testdata", "frames", name+".json")
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got)+"\n" != string(want) {
		t.Errorf("%s\n%s\nwant\n%s", name, got, want)
	}
}

func TestDecodeFrame(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]any{
		`{"type":"hello","token":"t"}`: &protocol.Hello{Token: "t"},
		`{"device":"phone","acks":true,"resume":{"id":"0192f0c1-2b3c-7d4e-8f50-123456789abc","seq":9007199254740991,"epoch":"abcdefgh12345678","x":1},"token":"t","type":"hello","more":[]}`: &protocol.Hello{
			Token: "t", Acks: true, Device: "phone", Resume: &protocol.Position{Epoch: testEpoch, Seq: protocol.MaxSeq, ID: testID}},
		`{"type":"hello","resume":{"epoch":"abcdefgh12345678","seq":1,"id":""}}`: &protocol.Hello{Resume: &protocol.Position{Epoch: testEpoch, Seq: 1}},
		`{"type":"hello","resume":null,"device":null,"acks":false}`:              &protocol.Hello{},
		`{"type":"ack","seq":7}`:              &protocol.Ack{N: 1, Seq: 7},
		`{"type":"ack","n":3,"seq":0}`:        &protocol.Ack{N: 3},
		`{"type":"token","token":"t2"}`:       &protocol.TokenFrame{Token: "t2"},
		` { "type" : "ping" , "Type":"ack" }`: &protocol.Ping{},
		`{"type":"publish","ref":"1","event":{"to":["a"],"type":"t","data":{"n":1}}}`: &protocol.Publish{
			Ref: "1", Event: &protocol.Event{To: []protocol.UserID{"a"}, Type: "t", Data: []byte(`{"n":1}`)}},
	} {
		got, err := protocol.DecodeFrame([]byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", in, diff)
		}
	}
}

func TestDecodeFrame_refusals(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]protocol.FrameError{
		``:                                      {Code: protocol.ErrorBadFrame, Message: "is not valid JSON"},
		`{"type":"ping"`:                        {Code: protocol.ErrorBadFrame, Message: "is not valid JSON"},
		`["ping"]`:                              {Code: protocol.ErrorBadFrame, Message: "must be a JSON object"},
		`{}`:                                    {Code: protocol.ErrorBadFrame, Message: "/type must be a string"},
		`{"type":1}`:                            {Code: protocol.ErrorBadFrame, Message: "/type must be a string"},
		`{"type":"welcome"}`:                    {Code: protocol.ErrorBadFrame, Message: `/type has no known value: "welcome"`},
		`{"type":"ack"}`:                        {Code: protocol.ErrorBadAck, Message: "/seq is missing"},
		`{"type":"ack","seq":"7"}`:              {Code: protocol.ErrorBadAck, Message: "/seq must be an integer from 0 to 2^53-1"},
		`{"type":"ack","seq":-1}`:               {Code: protocol.ErrorBadAck, Message: "/seq must be an integer from 0 to 2^53-1"},
		`{"type":"ack","seq":1.5}`:              {Code: protocol.ErrorBadAck, Message: "/seq must be an integer from 0 to 2^53-1"},
		`{"type":"ack","n":{},"seq":1}`:         {Code: protocol.ErrorBadAck, Message: "/n must be an integer from 0 to 2^53-1"},
		`{"type":"ack","seq":9007199254740992}`: {Code: protocol.ErrorBadAck, Message: "/seq must be an integer from 0 to 2^53-1"},
		`{"type":"token"}`:                      {Code: protocol.ErrorBadFrame, Message: "/token must be a string"},
		`{"type":"hello","token":1}`:            {Code: protocol.ErrorBadFrame, Message: "/token must be a string"},
		`{"type":"hello","acks":"y"}`:           {Code: protocol.ErrorBadFrame, Message: "/acks must be true or false"},
		`{"type":"hello","resume":[]}`:          {Code: protocol.ErrorBadFrame, Message: "/resume must be an object"},
		`{"type":"hello","resume":{"epoch":"abcdefgh12345678","seq":1}}`: {Code: protocol.ErrorBadFrame, Message: "/resume must have epoch, seq and id"},
		`{"type":"hello","resume":{"epoch":"abcdefgh12345678","seq":null,"id":""}}`: {
			Code: protocol.ErrorBadFrame, Message: "/resume/seq must be an integer from 0 to 2^53-1"},
		`{"type":"hello","device":"` + strings.Repeat("d", 33) + `"}`:                      {Code: protocol.ErrorBadFrame, Message: "/device is 33 bytes long, at most 32 are allowed"},
		`{"type":"publish","ref":7,"event":{}}`:                                            {Code: protocol.ErrorBadFrame, Message: "/ref must be a string"},
		`{"type":"publish","ref":"r1"}`:                                                    {Code: protocol.ErrorBadEvent, Ref: "r1", Message: "/event is missing"},
		`{"type":"publish","ref":"r1","event":[1]}`:                                        {Code: protocol.ErrorBadEvent, Ref: "r1", Message: "/event must be a JSON object"},
		`{"event":{"to":["a",""],"type":"t","data":{}},"type":"publish","ref":"r1"}`:       {Code: protocol.ErrorBadEvent, Ref: "r1", Message: "/event/to/1 must not be empty"},
		`{"event":{"to":["a"],"type":"lastmile.x","data":{}},"type":"publish","ref":"r1"}`: {Code: protocol.ErrorBadEvent, Ref: "r1", Message: `/event/type must not begin with "lastmile.", which is reserved`},
	} {
		_, err := protocol.DecodeFrame([]byte(in))
		var got *protocol.FrameError
		if !errors.As(err, &got) {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got.Code != want.Code || got.Ref != want.Ref || !strings.HasPrefix(got.Message, want.Message) {
			t.Errorf("%s: %s %q %q, want %s %q %q", in, got.Code, got.Ref, got.Message, want.Code, want.Ref, want.Message)
		}
		if f := got.Frame(); f.Code != got.Code || f.Ref != got.Ref || f.Message != got.Message {
			t.Errorf("%s: answered by %+v", in, f)
		}
	}
}

func TestDecodeFrame_aBadEventCarriesAllItsFaults(t *testing.T) {
	t.Parallel()
	_, err := protocol.DecodeFrame([]byte(`{"type":"publish","ref":"r","event":{"to":[]}}`))
	if got := pointers(t, err); !slices.Equal(got, []string{"/event/to", "/event/type", "/event/data"}) {
		t.Errorf("faults at %q", got)
	}
}

// A text frame that is no UTF-8 is refused before anything is made of it, wherever the bytes are.
func TestCase_C03_invalidUTF8IsRefused(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"\xff\xfe", "{\"type\":\"ping\",\"x\":\"\xff\xfe\"}", "{\"type\":\"publish\",\"event\":{\"to\":[\"a\"],\"type\":\"t\",\"data\":{\"x\":\"\xc3\x28\"}}}",
		"{\"type\":\"ping\",\"x\":\"\xed\xa0\x80\"}"} {
		if frame, err := protocol.DecodeFrame([]byte(in)); !errors.Is(err, protocol.ErrNotUTF8) {
			t.Errorf("%q: %v, %v", in, frame, err)
		}
		if _, err := protocol.DecodeEvents([]byte(in)); err == nil {
			t.Errorf("%q is taken for an event", in)
		}
	}
}

func TestDecodeFrame_doesNotAliasItsInput(t *testing.T) {
	t.Parallel()
	in := []byte(`{"type":"publish","ref":"abc","event":{"to":["alice"],"type":"chat","data":{"text":"hello"}}}`)
	got, err := protocol.DecodeFrame(in)
	if err != nil {
		t.Fatal(err)
	}
	clear(in)
	want := &protocol.Publish{Ref: "abc", Event: &protocol.Event{To: []protocol.UserID{"alice"}, Type: "chat", Data: []byte(`{"text":"hello"}`)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeFrame_ackAllocations(t *testing.T) {
	in := []byte(`{"type":"ack","n":1,"seq":123456}`)
	if got := testing.AllocsPerRun(100, func() {
		if _, err := protocol.DecodeFrame(in); err != nil {
			t.Fatal(err)
		}
	}); got > 6 {
		t.Errorf("%v allocations for an ack", got)
	}
}

func TestEventsFrame_staysWithinItsLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var f protocol.EventsFrame
		f.Reset()
		if f.Bytes() != nil {
			t.Fatal("an empty frame has bytes")
		}
		var want []string
		for i := range rapid.IntRange(1, 12).Draw(t, "n") {
			body := `{"x":"` + strings.Repeat("y", rapid.SampledFrom([]int{0, 10, 3000, 30_000, 70_000}).Draw(t, "size")) + `"}`
			if !f.Add(protocol.Seq(i), i%2 == 1, []byte(body)) {
				if f.Len() == 0 || len(f.Bytes())+len(body) <= protocol.MaxServerFrame-100 {
					t.Fatalf("refused %d bytes beside %d", len(body), len(f.Bytes()))
				}
				checkFrame(t, &f, want)
				want = nil
				f.Reset()
				f.Add(protocol.Seq(i), i%2 == 1, []byte(body))
			}
			want = append(want, body)
			checkFrame(t, &f, want) // Bytes in between changes nothing
		}
	})
}

func checkFrame(t *rapid.T, f *protocol.EventsFrame, want []string) {
	b := f.Bytes()
	if f.Len() != len(want) || len(b) > protocol.MaxServerFrame && len(want) > 1 {
		t.Fatalf("%d events in %d bytes, want %d", f.Len(), len(b), len(want))
	}
	var frame struct {
		Type   string
		Events []struct{ Event json.RawMessage }
	}
	if err := json.Unmarshal(b, &frame); err != nil || frame.Type != "events" || len(frame.Events) != len(want) {
		t.Fatalf("%v: %.200s", err, b)
	}
	for i := range want {
		if string(frame.Events[i].Event) != want[i] {
			t.Fatalf("event %d is %.100s", i, frame.Events[i].Event)
		}
	}
}

func TestEventsFrame_allocations(t *testing.T) {
	var f protocol.EventsFrame
	body := []byte(`{"id":"x","data":{}}`)
	fill := func() {
		f.Reset()
		for seq := range protocol.Seq(50) {
			f.Add(seq, false, body)
		}
		f.Bytes()
	}
	fill()
	if got := testing.AllocsPerRun(100, fill); got > 0 {
		t.Errorf("%v allocations a frame, want 0", got)
	}
}

func FuzzDecodeFrame(f *testing.F) {
	for _, s := range []string{
		`{"type":"hello","token":"t","resume":{"epoch":"abcdefgh12345678","seq":1,"id":""},"acks":true}`, `{"type":"ack","n":1,"seq":2}`,
		`{"type":"publish","ref":"1","event":{"to":["a"],"type":"t","data":{}}}`, `{"type":"token","token":""}`, `{"type":"ping"}`, `{"type":"\u0070ing"}`, "\xff", `[]`, `{`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := protocol.DecodeFrame(b)
		var fe *protocol.FrameError
		switch {
		case errors.Is(err, protocol.ErrNotUTF8):
		case errors.As(err, &fe):
			if !json.Valid(fe.Frame().AppendTo(nil)) {
				t.Fatalf("the answer is no JSON: %v", fe)
			}
		case err != nil || frame == nil:
			t.Fatalf("%v, %v", frame, err)
		}
	})
}
