package protocol_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastmile-gateway/lastmile/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	testID    = mustID("0192f0c1-2b3c-7d4e-8f50-123456789abc")
	testEpoch = protocol.Epoch("abcdefgh12345678")
	testTime  = time.Date(2026, 3, 4, 5, 6, 7, 89_999_999, time.FixedZone("", 3600))
)

func mustID(s string) protocol.EventID {
	id, err := protocol.ParseEventID(s)
	if err != nil {
		panic(err)
	}
	return id
}

// event is a valid one that tests change as they need.
func event() *protocol.Event {
	return &protocol.Event{
		ID: testID, To: []protocol.UserID{"alice", "bob"}, Type: "chat.message", Subject: "room:42",
		Data: []byte(`{"text": "a < b && \"c\"",  "n": 12345678901234567890.10}`), Time: testTime,
	}
}

func envelope(t testing.TB, e *protocol.Event) *protocol.Envelope {
	t.Helper()
	v, err := protocol.NewEnvelope(e)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
