package chat_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
)

const lobby = "/api/rooms/lobby/messages"

type outgoing struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

func newMessage(text string) outgoing { return outgoing{uuid.NewString(), text} }

func TestMessageAndItsEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alice := b.login("Alice")
	b.login("Bob")
	m := newMessage("hello <b>world</b> \"'& 🙂")
	got := b.must(201, b.call(alice, "POST", lobby, m)).body["message"].(map[string]any)
	for field, want := range map[string]any{
		"id": m.ID, "text": m.Text, "from": "alice", "name": "Alice", "room": "lobby", "seq": 1.0,
	} {
		if got[field] != want {
			t.Errorf("%s: %v, want %v", field, got[field], want)
		}
	}
	events := b.events("chat.message")
	if len(events) != 1 {
		t.Fatalf("%d events", len(events))
	}
	e := events[0]
	if e.Source != "chat" || e.Subject != "room:lobby" || fmt.Sprint(e.To) != "[alice bob]" {
		t.Errorf("event %+v", e)
	}
	if e.Notify != nil && !*e.Notify {
		t.Error("who is away isn't notified of a message")
	}
	for field, want := range got {
		if fmt.Sprint(e.Data[field]) != fmt.Sprint(want) {
			t.Errorf("event data %s: %v, want %v", field, e.Data[field], want)
		}
	}
	if _, ok := e.Data["_id"]; ok {
		t.Error("the key of the document is in the event")
	}
	history := b.history(alice, lobby)
	if len(history) != 1 || fmt.Sprint(history[0]) != fmt.Sprint(got) {
		t.Errorf("history %v, want %v", history, got)
	}
}

// TestCase_F11_SameIDIsOneMessage sends again what was stored, in each way that happens.
func TestCase_F11_SameIDIsOneMessage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alice, bob := b.login("Alice"), b.login("Bob")
	m := newMessage("once")
	first := b.must(201, b.call(alice, "POST", lobby, m))
	again := b.must(200, b.call(alice, "POST", lobby, m))
	if again.raw != first.raw {
		t.Errorf("the same message again: %s, want %s", again.raw, first.raw)
	}
	b.must(409, b.call(alice, "POST", lobby, outgoing{m.ID, "another text"}))
	b.must(201, b.call(alice, "POST", "/api/rooms", map[string]string{"title": "side"}))
	b.must(409, b.call(alice, "POST", "/api/rooms/side/messages", m))
	if n := len(b.events("chat.message")); n != 1 {
		t.Errorf("%d events", n)
	}
	// Another sender's ids are his own.
	b.must(201, b.call(bob, "POST", lobby, outgoing{m.ID, "mine"}))
	if got := b.history(alice, lobby); len(got) != 2 || got[0]["text"] != "once" || got[1]["text"] != "mine" {
		t.Errorf("history %v", got)
	}
}

// TestCase_F11_ConcurrentResends sends each message from several places at the same moment.
func TestCase_F11_ConcurrentResends(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.second()
	sessions := []string{b.login("Alice"), b.login("Bob"), b.login("Carol")}
	const each, copies = 8, 3
	var wg sync.WaitGroup
	var mu sync.Mutex
	created := 0
	seqs := map[string]map[any]bool{}
	for u, session := range sessions {
		for i := range each {
			m := newMessage(fmt.Sprintf("%d/%d", u, i))
			for copy := range copies {
				// Two processes: what they do at the same moment only the database can keep apart.
				at := []*bundle{b, other}[(i+copy)%2]
				wg.Go(func() {
					got := at.call(session, "POST", lobby, m)
					mu.Lock()
					defer mu.Unlock()
					switch got.status {
					case 201:
						created++
					case 200:
					default:
						t.Errorf("status %d: %s", got.status, got.raw)
						return
					}
					if seqs[m.ID] == nil {
						seqs[m.ID] = map[any]bool{}
					}
					seqs[m.ID][got.body["message"].(map[string]any)["seq"]] = true
				})
			}
		}
	}
	wg.Wait()
	want := each * len(sessions)
	if created != want {
		t.Errorf("%d answers say created, want %d", created, want)
	}
	for id, answers := range seqs {
		if len(answers) != 1 {
			t.Errorf("message %s was answered with seqs %v", id, answers)
		}
	}
	history := b.history(sessions[0], lobby)
	events := b.events("chat.message")
	if len(history) != want || len(events) != want {
		t.Fatalf("%d messages, %d events, want %d", len(history), len(events), want)
	}
	for i, m := range history {
		if m["seq"] != float64(i+1) {
			t.Errorf("message %d has seq %v", i, m["seq"])
		}
	}
}

// TestAbortLeavesNothing has a member whose id no event can name: publishing fails in the transaction.
func TestAbortLeavesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alice := b.login("Alice")
	b.must(201, b.call(alice, "POST", lobby, newMessage("before")))
	members := b.db.Collection("chat_members")
	_, err := members.InsertOne(t.Context(), bson.D{
		{Key: "room", Value: "lobby"}, {Key: "user", Value: "no\x00user"}, {Key: "name", Value: "x"},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := newMessage("lost")
	b.must(503, b.call(alice, "POST", lobby, m))
	if len(b.history(alice, lobby)) != 1 || len(b.events("chat.message")) != 1 {
		t.Errorf("%d messages, %d events, want one of each", len(b.history(alice, lobby)), len(b.events("chat.message")))
	}
	if _, err := members.DeleteOne(t.Context(), bson.D{{Key: "user", Value: "no\x00user"}}); err != nil {
		t.Fatal(err)
	}
	got := b.must(201, b.call(alice, "POST", lobby, m)).body["message"].(map[string]any)
	if got["seq"] != 2.0 {
		t.Errorf("seq %v: the aborted one took a number", got["seq"])
	}
}

func TestHistoryInPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alice := b.login("Alice")
	for i := range 7 {
		b.must(201, b.call(alice, "POST", lobby, newMessage(fmt.Sprint(i))))
	}
	for _, page := range []struct {
		query string
		seqs  string
		more  bool
	}{
		{"", "[1 2 3 4 5 6 7]", false},
		{"?limit=3", "[5 6 7]", true},
		{"?limit=3&before=5", "[2 3 4]", true},
		{"?limit=3&before=2", "[1]", false},
		{"?before=1", "[]", false},
		{"?limit=7", "[1 2 3 4 5 6 7]", false},
		{"?limit=99999999", "[1 2 3 4 5 6 7]", false},
		{"?limit=0", "[7]", true},
	} {
		got := b.must(200, b.call(alice, "GET", lobby+page.query, nil))
		seqs := []any{}
		for _, m := range got.body["messages"].([]any) {
			seqs = append(seqs, m.(map[string]any)["seq"])
		}
		if fmt.Sprint(seqs) != page.seqs || got.body["more"] != page.more {
			t.Errorf("%s: %v, more %v", page.query, seqs, got.body["more"])
		}
	}
	b.must(400, b.call(alice, "GET", lobby+"?before=x", nil))
	b.must(400, b.call(alice, "GET", lobby+"?limit=-1", nil))
}
