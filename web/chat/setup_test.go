package chat_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/goleak"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/web/chat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var secret = []byte("a secret for tests only, 32 bytes")

type bundle struct {
	t       *testing.T
	db      *mongo.Database
	server  *chat.Server
	handler http.Handler
}

// setup gives a prepared chat on a database of its own.
func setup(t *testing.T) *bundle {
	t.Helper()
	at := testkit.FirstMongo(t)
	db := at.Client(t).Database(at.Database())
	b := &bundle{t: t, db: db}
	b.start()
	return b
}

// second is another process on the same database.
func (b *bundle) second() *bundle {
	b.t.Helper()
	other := &bundle{t: b.t, db: b.db}
	other.start()
	return other
}

func (b *bundle) start() {
	b.t.Helper()
	server, err := chat.New(b.t.Context(), chat.Config{
		Mongo: b.db, TokenSecret: secret, Logger: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
		Sockets: []string{"ws://127.0.0.1:8081", "https://b.example/v1/ws"},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.server, b.handler = server, server.Handler()
}

type answer struct {
	status int
	header http.Header
	body   map[string]any
	raw    string
}

// call asks the API; session may be empty, body nil, a string (sent as it is) or anything that is JSON.
func (b *bundle) call(session, method, path string, body any) answer {
	var payload bytes.Buffer
	if s, ok := body.(string); ok {
		payload.WriteString(s)
	} else if body != nil {
		if err := json.NewEncoder(&payload).Encode(body); err != nil {
			b.t.Error(err)
		}
	}
	r := httptest.NewRequest(method, path, &payload)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if session != "" {
		r.Header.Set("Authorization", "Bearer "+session)
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	got := answer{status: w.Code, header: w.Header(), raw: w.Body.String()}
	_ = json.Unmarshal(w.Body.Bytes(), &got.body)
	return got
}

func (b *bundle) must(want int, got answer) answer {
	b.t.Helper()
	if got.status != want {
		b.t.Fatalf("status %d, want %d: %s", got.status, want, got.raw)
	}
	return got
}

func (b *bundle) login(name string) string {
	b.t.Helper()
	session, _ := b.must(200, b.call("", "POST", "/api/login", map[string]string{"name": name})).body["session"].(string)
	return session
}

// event is what the tests look at of an outbox document.
type event struct {
	ID      string         `bson:"_id"`
	To      []string       `bson:"to"`
	Type    string         `bson:"type"`
	Source  string         `bson:"source"`
	Subject string         `bson:"subject"`
	Notify  *bool          `bson:"notify"`
	Data    map[string]any `bson:"data"`
}

func (b *bundle) events(eventType string) []event {
	b.t.Helper()
	cursor, err := b.db.Collection("outbox").Find(b.t.Context(), bson.D{{Key: "type", Value: eventType}})
	if err != nil {
		b.t.Fatal(err)
	}
	var found []event
	if err := cursor.All(b.t.Context(), &found); err != nil {
		b.t.Fatal(err)
	}
	return found
}

func (b *bundle) count(coll string) int64 {
	b.t.Helper()
	n, err := b.db.Collection(coll).CountDocuments(b.t.Context(), bson.D{})
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bundle) history(session, path string) []map[string]any {
	b.t.Helper()
	got := b.must(200, b.call(session, "GET", path, nil))
	list, _ := got.body["messages"].([]any)
	messages := make([]map[string]any, len(list))
	for i := range list {
		messages[i], _ = list[i].(map[string]any)
	}
	return messages
}
