package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/lastmile-gateway/lastmile/web"
)

// fakeChat is a chat backend and a socket server of one user, scripted: what it says is what a test wants.
type fakeChat struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	messages []map[string]any
	seq      int
	log      int // seq of the user's log
	failing  int // so many sends are answered by 503
	refusing string
	conns    []*websocket.Conn
	hellos   []map[string]any
	lose     bool // the next answer to a send is lost
}

func newFakeChat(t *testing.T) *fakeChat {
	f := &fakeChat{t: t}
	mux := http.NewServeMux()
	page, err := web.Files(os.DirFS("chat/page"))
	if err != nil {
		t.Fatal(err)
	}
	mux.Handle("/", page)
	mux.Handle("/client/", http.StripPrefix("/client", web.Client()))
	mux.HandleFunc("GET /v1/ws", f.socket)
	mux.HandleFunc("/api/", f.api)
	f.Server = httptest.NewServer(nil)
	origin := strings.Replace(f.URL, "http", "ws", 1)
	f.Config.Handler = web.Secure(mux, origin)
	t.Cleanup(func() {
		f.drop()
		f.Close()
	})
	return f
}

func (f *fakeChat) api(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	answer := func(status int, v any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	switch r.Method + " " + strings.TrimPrefix(r.URL.Path, "/api") {
	case "GET /config":
		answer(200, map[string]any{"sockets": []string{strings.Replace(f.URL, "http", "ws", 1) + "/v1/ws"}})
	case "POST /login":
		var body struct{ Name string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		answer(200, map[string]any{"session": "s", "user": map[string]string{"id": "alice", "name": body.Name}})
	case "GET /token":
		answer(200, map[string]any{"token": "t", "expiresIn": 900})
	case "GET /rooms":
		answer(200, map[string]any{"rooms": []map[string]any{
			{"id": "lobby", "title": "Lobby", "member": true, "members": 3, "seq": f.seq},
			{"id": "plans", "title": "Plans for the weekend", "member": true, "members": 2, "seq": 0},
			{"id": "recipes", "title": "Recipes", "member": false, "members": 1, "seq": 0},
		}})
	case "GET /rooms/lobby/messages":
		end := len(f.messages)
		if before, err := strconv.Atoi(r.URL.Query().Get("before")); err == nil {
			end = before - 1
		}
		answer(200, map[string]any{"messages": append([]map[string]any{}, f.messages[max(0, end-50):end]...)})
	case "GET /rooms/plans/messages":
		answer(200, map[string]any{"messages": []any{}})
	case "POST /rooms/lobby/messages":
		var body struct{ ID, Text string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		if f.refusing != "" {
			answer(422, map[string]any{"detail": f.refusing})
			return
		}
		if f.failing > 0 {
			f.failing--
			answer(503, map[string]any{"detail": "away"})
			return
		}
		m := f.storeLocked(body.ID, "alice", "Alice", body.Text, time.Now())
		if f.lose {
			f.lose = false
			panic(http.ErrAbortHandler)
		}
		answer(201, map[string]any{"message": m})
	default:
		answer(404, map[string]any{"detail": "no such endpoint"})
	}
}

// storeLocked keeps a message once per id, as the real backend does.
func (f *fakeChat) storeLocked(id, from, name, text string, at time.Time) map[string]any {
	for _, m := range f.messages {
		if m["id"] == id && m["from"] == from {
			return m
		}
	}
	f.seq++
	m := map[string]any{
		"id": id, "room": "lobby", "from": from, "name": name, "text": text, "seq": f.seq,
		"createdAt": at.UTC().Format(time.RFC3339Nano),
	}
	f.messages = append(f.messages, m)
	return m
}

// say stores a message of somebody and tells it to the page, if one is connected.
func (f *fakeChat) say(id, from, name, text string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.storeLocked(id, from, name, text, at)
	f.log++
	f.sendLocked(map[string]any{"type": "events", "events": []any{map[string]any{
		"seq": f.log,
		"event": map[string]any{
			"specversion": "1.0", "id": fmt.Sprintf("event-%d", f.log), "source": "chat", "type": "chat.message",
			"time": at.UTC().Format(time.RFC3339Nano), "subject": "room:lobby", "data": m,
		},
	}}})
}

// quiet stores a message that the page is not told of.
func (f *fakeChat) quiet(id, from, name, text string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.storeLocked(id, from, name, text, at)
}

func (f *fakeChat) sendLocked(frame any) {
	if len(f.conns) == 0 {
		return
	}
	b, err := json.Marshal(frame)
	if err != nil {
		f.t.Error(err)
		return
	}
	_ = f.conns[len(f.conns)-1].Write(f.t.Context(), websocket.MessageText, b)
}

func (f *fakeChat) socket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"lastmile.v1"}})
	if err != nil {
		return
	}
	_, b, err := c.Read(r.Context())
	if err != nil {
		return
	}
	var hello map[string]any
	_ = json.Unmarshal(b, &hello)
	f.mu.Lock()
	f.conns = append(f.conns, c)
	f.hellos = append(f.hellos, hello)
	f.sendLocked(map[string]any{
		"type": "welcome", "n": 1, "session": "s", "user": "alice", "instance": fmt.Sprintf("server-%d-abcdef012345", len(f.conns)),
		"epoch": "e", "seq": f.log, "id": "", "recovered": false, "pingInterval": 25_000, "reconnectWithin": 200, "maxFrame": 300_000,
	})
	f.mu.Unlock()
	for {
		if _, _, err := c.Read(r.Context()); err != nil {
			return
		}
	}
}

// drop cuts the page's connection without a word.
func (f *fakeChat) drop() {
	f.mu.Lock()
	conns := slices.Clone(f.conns)
	f.mu.Unlock()
	for _, c := range conns {
		_ = c.CloseNow()
	}
}

func (f *fakeChat) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}
