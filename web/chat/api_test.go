package chat_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/golang-jwt/jwt/v5"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/web/chat"
)

func TestBadInputIsToldAsAProblem(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alice := b.login("Alice")
	long := strings.Repeat("é", 10_001)
	for _, c := range []struct {
		name, session, method, path string
		body                        any
		status                      int
		detail                      string
	}{
		{"no session", "", "GET", "/api/rooms", nil, 401, "sign in"},
		{"bad session", "x.y.z", "GET", "/api/rooms", nil, 401, "sign in"},
		{"no name", "", "POST", "/api/login", map[string]any{}, 400, "name: empty"},
		{"spaces for a name", "", "POST", "/api/login", map[string]any{"name": " \t "}, 400, "name: empty"},
		{"control characters", "", "POST", "/api/login", map[string]any{"name": "a\x00b"}, 400, "control"},
		{"long name", "", "POST", "/api/login", map[string]any{"name": strings.Repeat("x", 65)}, 400, "64"},
		{"name of a wrong type", "", "POST", "/api/login", map[string]any{"name": 7}, 400, "name"},
		{"no JSON", "", "POST", "/api/login", "{", 400, "JSON"},
		{"no UTF-8", "", "POST", "/api/login", "{\"name\":\"\xff\"}", 400, "UTF-8"},
		{"an array", "", "POST", "/api/login", "[]", 400, "object"},
		{"too big", alice, "POST", lobby, map[string]any{"text": strings.Repeat("x", 200_000)}, 413, "large"},
		{"no id", alice, "POST", lobby, map[string]any{"text": "x"}, 400, "id"},
		{"upper case id", alice, "POST", lobby, map[string]any{"id": "0197F0A0-0000-7000-8000-00000000000A", "text": "x"}, 400, "id"},
		{"no text", alice, "POST", lobby, newMessage(" \n"), 400, "text: empty"},
		{"long text", alice, "POST", lobby, newMessage(long), 400, "10000"},
		{"no such room", alice, "POST", "/api/rooms/none/messages", newMessage("x"), 404, "no such room"},
		{"history of no room", alice, "GET", "/api/rooms/none/messages", nil, 403, "join"},
		{"join no room", alice, "POST", "/api/rooms/none/join", map[string]any{}, 404, "no such room"},
		{"no such endpoint", alice, "GET", "/api/none", nil, 404, "endpoint"},
		{"wrong method", alice, "DELETE", "/api/rooms", nil, 404, "endpoint"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := b.call(c.session, c.method, c.path, c.body)
			detail, _ := got.body["detail"].(string)
			if got.status != c.status || !strings.Contains(detail, c.detail) {
				t.Errorf("%d %q, want %d with %q", got.status, detail, c.status, c.detail)
			}
			if ct := got.header.Get("Content-Type"); ct != "application/problem+json" {
				t.Errorf("content type %q", ct)
			}
		})
	}
	if n := b.count("chat_messages"); n != 0 {
		t.Errorf("%d messages stored", n)
	}
}

func TestBodyMustSayThatItIsJSON(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := httptest.NewRequest("POST", "/api/login", strings.NewReader(`{"name":"x"}`))
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	if w.Code != 415 {
		t.Errorf("status %d", w.Code)
	}
}

func TestUserIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := map[string]string{}
	for _, name := range []string{
		"Alice", "a b", "a-b", "C", "C++", "名前", "👩‍👩‍👧", "<img>", `"'`, "{curly}", "100%", strings.Repeat("名", 64), strings.Repeat("👩", 64),
	} {
		got := b.must(200, b.call("", "POST", "/api/login", map[string]string{"name": name})).body["user"].(map[string]any)
		id := got["id"].(string)
		if other, taken := ids[id]; taken {
			t.Errorf("%q and %q are both %q", name, other, id)
		}
		ids[id] = name
		if got["name"] != name {
			t.Errorf("name %q became %q", name, got["name"])
		}
		if id == "" || len(id) > 128 || strings.ContainsFunc(id, func(r rune) bool {
			return unicode.IsControl(r) || unicode.IsSpace(r) || strings.ContainsRune(`/{}%"'<>`, r)
		}) {
			t.Errorf("%q has the id %q", name, id)
		}
	}
	if ids["alice"] != "Alice" || ids["名前"] != "名前" {
		t.Errorf("ids %v", ids)
	}
	// A second sign-in is a second device of the same user, whatever the case.
	again := b.must(200, b.call("", "POST", "/api/login", map[string]string{"name": "  aLiCe "})).body["user"].(map[string]any)
	if again["id"] != "alice" || again["name"] != "Alice" {
		t.Errorf("second device: %v", again)
	}
}

func TestTokenIsForTheSocketAndShort(t *testing.T) {
	t.Parallel()
	b := setup(t)
	session := b.login("Alice")
	got := b.must(200, b.call(session, "GET", "/api/token", nil))
	if cc := got.header.Get("Cache-Control"); cc != "no-store" {
		t.Errorf("Cache-Control %q", cc)
	}
	var claims jwt.RegisteredClaims
	key := func(*jwt.Token) (any, error) { return secret, nil }
	_, err := jwt.ParseWithClaims(got.body["token"].(string), &claims, key, jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired())
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(claims.ExpiresAt.Time); claims.Subject != "alice" || left > 15*time.Minute || left < 14*time.Minute {
		t.Errorf("claims %+v", claims)
	}
	if _, err := jwt.Parse(session, key); err == nil {
		t.Error("a session, which lives for weeks, is good for the socket")
	}
	if got := b.call(got.body["token"].(string), "GET", "/api/rooms", nil); got.status != 401 {
		t.Errorf("a socket token as session: %d", got.status)
	}
	none := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"sub": "alice", "exp": time.Now().Add(time.Hour).Unix()})
	unsigned, err := none.SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.call(unsigned, "GET", "/api/rooms", nil); got.status != 401 {
		t.Errorf("an unsigned session: %d", got.status)
	}
}

func TestRoomsAndMembers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	alice, bob := b.login("Alice"), b.login("Bob")
	b.must(201, b.call(alice, "POST", "/api/rooms", map[string]string{"title": "Plans"}))
	b.must(409, b.call(bob, "POST", "/api/rooms", map[string]string{"title": "plans"}))

	made := b.events("chat.room")
	if len(made) == 1 && (made[0].Notify == nil || *made[0].Notify) {
		t.Error("who is away is notified of a new room")
	}
	if len(made) != 1 || fmt.Sprint(made[0].To) != "[alice bob]" || made[0].Subject != "room:plans" {
		t.Errorf("room events %+v", made)
	}
	b.must(403, b.call(bob, "POST", "/api/rooms/plans/messages", newMessage("x")))
	b.must(403, b.call(bob, "GET", "/api/rooms/plans/messages", nil))
	b.must(403, b.call(bob, "GET", "/api/rooms/plans/members", nil))
	first := b.must(200, b.call(bob, "POST", "/api/rooms/plans/join", map[string]any{}))
	again := b.must(200, b.call(bob, "POST", "/api/rooms/plans/join", map[string]any{}))
	if first.raw != again.raw {
		t.Errorf("joined again: %s, want %s", again.raw, first.raw)
	}
	b.must(201, b.call(bob, "POST", "/api/rooms/plans/messages", newMessage("here")))

	var joined []event
	for _, e := range b.events("chat.member") {
		if e.Subject == "room:plans" {
			joined = append(joined, e)
		}
	}
	if len(joined) != 2 || joined[1].Data["user"] != "bob" || fmt.Sprint(joined[1].To) != "[alice bob]" || fmt.Sprint(joined[1].Data["members"]) != "2" {
		t.Errorf("member events %+v", joined)
	}
	members := b.must(200, b.call(alice, "GET", "/api/rooms/plans/members", nil)).body["members"].([]any)
	if len(members) != 2 || members[1].(map[string]any)["name"] != "Bob" {
		t.Errorf("members %v", members)
	}
	carol := b.login("Carol")
	rooms := b.must(200, b.call(carol, "GET", "/api/rooms", nil)).body["rooms"].([]any)
	seen := fmt.Sprint(rooms[0].(map[string]any)["id"], rooms[0].(map[string]any)["member"], rooms[0].(map[string]any)["members"],
		rooms[1].(map[string]any)["id"], rooms[1].(map[string]any)["member"], rooms[1].(map[string]any)["members"], rooms[1].(map[string]any)["seq"])
	if seen != fmt.Sprint("lobby", true, 3, "plans", false, 2, 1) {
		t.Errorf("rooms %v", seen)
	}
}

func TestConfigAndHeaders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := b.must(200, b.call("", "GET", "/api/config", nil))
	if s := fmt.Sprint(got.body["sockets"]); s != "[ws://127.0.0.1:8081/v1/ws wss://b.example/v1/ws]" {
		t.Errorf("sockets %s", s)
	}
	for _, path := range []string{"/", "/chat.js", "/client/index.js", "/api/config", "/missing"} {
		header := b.call("", "GET", path, nil).header
		policy := header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "connect-src 'self' ws://127.0.0.1:8081 wss://b.example;") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", path, policy)
		}
		if header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: headers %v", path, header)
		}
	}
	page := b.must(200, b.call("", "GET", "/", nil))
	if strings.Contains(page.raw, "<style") || strings.Contains(page.raw, "style=") || strings.Contains(page.raw, "onclick") {
		t.Error("the page has inline code that its policy forbids")
	}
}

func TestConfigFaultsAreToldTogether(t *testing.T) {
	t.Parallel()
	_, err := chat.New(t.Context(), chat.Config{Sockets: []string{"ftp://x", "ws://"}, Timeout: -1})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"MongoURL", "TokenSecret", "Sockets[0]", "Sockets[1]", "Timeout"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %s: %v", want, err)
		}
	}
}

func TestOwnConnection(t *testing.T) {
	t.Parallel()
	at := testkit.FirstMongo(t)
	cfg := chat.Config{MongoURL: at.URL, TokenSecret: secret, Sockets: []string{"ws://127.0.0.1:1"}}
	for range 2 { // a second process finds all there
		s, err := chat.New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		b := &bundle{t, at.Client(t).Database(at.Database()), s, s.Handler()}
		b.login("Alice")
		if n := b.count("chat_users"); n != 1 {
			t.Errorf("%d users in the database that the URL names", n)
		}
		if err := s.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := s.Ping(t.Context()); err == nil {
			t.Error("it answers when it is closed")
		}
	}
}

func TestUnreachableDatabaseSaysSo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := chat.New(ctx, chat.Config{
		MongoURL:    "mongodb://user:hunter2@" + testkit.FreeAddr(t) + "/db",
		TokenSecret: secret, Sockets: []string{"ws://127.0.0.1:1"},
	})
	if err == nil || !errors.Is(err, outbox.ErrUnreachable) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v", err)
	}
}
