package protocol_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/lastmile-gateway/lastmile/protocol"
)

func TestParseUserID(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "user:42", "Ünïcode 名", strings.Repeat("x", 128), "{a}%7d"} {
		if id, err := protocol.ParseUserID(good); err != nil || string(id) != good {
			t.Errorf("ParseUserID(%q) = %q, %v", good, id, err)
		}
	}
	for _, bad := range []string{"", strings.Repeat("x", 129), "a\nb", "a\x00", "\u0085", "\xff\xfe", "a\x7f"} {
		if _, err := protocol.ParseUserID(bad); !errors.Is(err, protocol.ErrUserID) {
			t.Errorf("ParseUserID(%q) = %v, want ErrUserID", bad, err)
		}
	}
}

func TestInstanceID_keepsItsNameAndIsNewEachTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[A-Za-z0-9._:-]{1,64}`).Draw(t, "name")
		if _, err := protocol.ParseInstanceName(name); err != nil {
			t.Fatal(err)
		}
		a, b := protocol.NewInstanceID(name), protocol.NewInstanceID(name)
		if a == b {
			t.Fatalf("two lives with the same id %s", a)
		}
		parsed, err := protocol.ParseInstanceID(string(a))
		if err != nil || parsed != a || parsed.Name() != name {
			t.Fatalf("%q: parsed %q, name %q, %v", a, parsed, parsed.Name(), err)
		}
	})
}

func TestParseInstanceID_refusesOtherForms(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "name", "-abcdefghijkl", "name-abcdefghijk", "name-ABCDEFGHIJKL", "na me-abcdefghijkl", "name_abcdefghijkl",
		strings.Repeat("n", 65) + "-abcdefghijkl", "name/x-abcdefghijkl"} {
		if _, err := protocol.ParseInstanceID(bad); !errors.Is(err, protocol.ErrInstanceID) {
			t.Errorf("ParseInstanceID(%q) = %v, want ErrInstanceID", bad, err)
		}
	}
	if name := protocol.InstanceID("short").Name(); name != "" {
		t.Errorf("name of a malformed id is %q", name)
	}
}

func TestSessionIDAndEpoch_roundTrip(t *testing.T) {
	t.Parallel()
	s, e := protocol.NewSessionID(), protocol.NewEpoch()
	if got, err := protocol.ParseSessionID(string(s)); err != nil || got != s || len(s) != 12 {
		t.Errorf("session %q: %q, %v", s, got, err)
	}
	if got, err := protocol.ParseEpoch(string(e)); err != nil || got != e || len(e) != 16 {
		t.Errorf("epoch %q: %q, %v", e, got, err)
	}
	if _, err := protocol.ParseSessionID(string(e)); !errors.Is(err, protocol.ErrSessionID) {
		t.Errorf("an epoch is taken for a session: %v", err)
	}
	for _, bad := range []string{"", "ABCDEFGH12345678", "abcdefgh1234567é"} {
		if _, err := protocol.ParseEpoch(bad); !errors.Is(err, protocol.ErrEpoch) {
			t.Errorf("ParseEpoch(%q) = %v", bad, err)
		}
	}
}

func TestEventID_textForm(t *testing.T) {
	t.Parallel()
	id := protocol.NewEventID()
	if got, err := protocol.ParseEventID(id.String()); err != nil || got != id {
		t.Errorf("round trip of %s: %s, %v", id, got, err)
	}
	if s := id.String(); s[14] != '7' {
		t.Errorf("%s is not a UUID of version 7", s)
	}
	if got := string(id.AppendTo([]byte("x"))); got != "x"+id.String() {
		t.Errorf("AppendTo gives %s for %s", got, id)
	}
	for _, bad := range []string{"", strings.ToUpper(testID.String()), strings.ReplaceAll(testID.String(), "-", ""), "{" + testID.String() + "}",
		"urn:uuid:" + testID.String(), "00000000-0000-0000-0000-000000000000", testID.String() + "0", "not-a-uuid"} {
		if _, err := protocol.ParseEventID(bad); !errors.Is(err, protocol.ErrEventID) {
			t.Errorf("ParseEventID(%q) = %v, want ErrEventID", bad, err)
		}
	}
}

func TestPosition_json(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]protocol.Position{
		`{"epoch":"abcdefgh12345678","seq":7,"id":"0192f0c1-2b3c-7d4e-8f50-123456789abc"}`: {Epoch: testEpoch, Seq: 7, ID: testID},
		`{"epoch":"abcdefgh12345678","seq":1,"id":""}`:                                     {Epoch: testEpoch, Seq: 1},
	} {
		got, err := json.Marshal(p)
		if err != nil || string(got) != want {
			t.Errorf("marshal: %s, %v, want %s", got, err, want)
		}
		var back protocol.Position
		if err := json.Unmarshal(got, &back); err != nil || back != p {
			t.Errorf("unmarshal %s: %+v, %v", got, back, err)
		}
	}
}
