package socket_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/socket"
)

func mayPublish(patterns ...string) func(jwt.MapClaims) {
	return func(c jwt.MapClaims) { c["lastmile"] = map[string]any{"publish": patterns} }
}

func TestPublishAPI(t *testing.T) {
	r, a := setup(t)
	good := `{"to":["u"],"type":"chat.message","data":{"name":"x"}}`
	for name, tc := range map[string]struct {
		key, body string
		status    int
		pointers  string
		ids       int
	}{
		"one":           {apiKey, good, 202, "", 1},
		"array":         {apiKey, " [" + good + "," + good + "]", 202, "", 2},
		"no key":        {"", good, 401, "", 0},
		"other key":     {apiKey + "x", good, 401, "", 0},
		"no JSON":       {apiKey, "{", 422, "", 0},
		"empty array":   {apiKey, "[]", 422, "", 0},
		"bad field":     {apiKey, `{"to":["u",""],"type":"","data":[]}`, 422, "/to/1 /type /data", 0},
		"bad in array":  {apiKey, `[` + good + `,{"to":["u"],"type":"x","data":3}]`, 422, "/1/data", 0},
		"reserved":      {apiKey, `{"to":["u"],"type":"lastmile.probe","data":{}}`, 422, "/type", 0},
		"reserved in 1": {apiKey, `[` + good + `,{"to":["u"],"type":"lastmile.probe","data":{}}]`, 422, "/1/type", 0},
		"too large":     {apiKey, strings.Repeat(" ", protocol.MaxPublishBody+1), 413, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			resp := post(t, a, tc.key, tc.body)
			var answer struct {
				IDs    []protocol.EventID
				Title  string
				Status int
				Errors []struct{ Pointer, Detail string }
			}
			b, err := io.ReadAll(resp.Body)
			if err == nil {
				err = json.Unmarshal(b, &answer)
			}
			if err != nil || resp.StatusCode != tc.status || len(answer.IDs) != tc.ids {
				t.Fatalf("%d %s (%v)", resp.StatusCode, b, err)
			}
			if tc.status == 202 {
				return
			}
			if ct := resp.Header.Get("Content-Type"); ct != "application/problem+json" || answer.Status != tc.status || answer.Title == "" {
				t.Errorf("%s %s", ct, b)
			}
			var all []string
			for _, f := range answer.Errors {
				all = append(all, f.Pointer)
			}
			for want := range strings.FieldsSeq(tc.pointers) {
				if !strings.Contains(strings.Join(all, " "), want) {
					t.Errorf("pointers %q, want %q", all, want)
				}
			}
		})
	}
	r.store.set(errors.New("mongo is away"))
	if resp := post(t, a, apiKey, good); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestClientPublish(t *testing.T) {
	r, a := setup(t, func(c *socket.Config) { c.PublishQueue = 3 })
	c := connect(t, a, "u", hello{"token": token("u", mayPublish("chat.*", "exact"))})
	plain := connect(t, a, "v")
	publish := func(c *client, ref, typ string, more ...string) {
		event := map[string]any{"to": []string{"u"}, "type": typ, "data": map[string]any{"name": ref}, "source": "user:somebody-else"}
		for i := 0; i < len(more); i += 2 {
			event[more[i]] = more[i+1]
		}
		c.send(map[string]any{"type": "publish", "ref": ref, "event": event})
	}
	answer := func(c *client, ref string) frame {
		return c.find("answer to "+ref, func(f frame) bool { return f.Ref == ref })
	}
	id := protocol.NewEventID()
	publish(c, "good", "chat.message", "id", id.String())
	if f := answer(c, "good"); f.Type != "published" || f.ID != id {
		t.Errorf("%+v", f)
	}
	docs, _ := r.store.Fetch(t.Context(), id)
	if d := docs[id]; d == nil || !strings.Contains(string(d.Body), `"source":"user:u"`) {
		t.Errorf("stored: %v", d)
	}
	publish(c, "probe", protocol.ProbeType)
	if f := answer(c, "probe"); f.Code != protocol.ErrorBadEvent {
		t.Errorf("%+v", f)
	}
	for ref, typ := range map[string]string{"1": "other", "2": "chatter"} {
		publish(c, ref, typ)
		if f := answer(c, ref); f.Code != protocol.ErrorNotAllowed {
			t.Errorf("%s: %+v", typ, f)
		}
	}
	publish(plain, "none", "chat.message")
	if f := answer(plain, "none"); f.Code != protocol.ErrorNotAllowed {
		t.Errorf("%+v", f)
	}
	publish(c, "bad", "chat.message", "id", "no uuid")
	if f := answer(c, "bad"); f.Code != protocol.ErrorBadEvent || !strings.Contains(f.Message, "/event/id") {
		t.Errorf("%+v", f)
	}
	r.store.set(errors.New("mongo is away"))
	publish(c, "away", "exact")
	if f := answer(c, "away"); f.Code != protocol.ErrorUnavailable {
		t.Errorf("%+v", f)
	}
	r.store.set(nil)

	r.store.mu.Lock()
	r.store.block = make(chan struct{})
	r.store.mu.Unlock()
	for range 10 {
		publish(c, "flood", "exact")
	}
	if f := answer(c, "flood"); f.Code != protocol.ErrorRateLimited {
		t.Errorf("%+v", f)
	}
	close(r.store.block)
}

// The way through a real outbox: posted, committed, missed while away, fetched at the resume.
func TestResumeFetchesFromTheOutbox(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.EmbeddedRedis(t))
	store, err := outbox.Open(t.Context(), testkit.FirstMongo(t).URL, outbox.Config{CacheBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close(t.Context()) })
	if err := store.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv := r.startOn(store, "a").ready()
	c := connect(t, srv, "u")
	c.drop()
	var want []string
	for _, name := range names("e", 3) {
		resp := post(t, srv, apiKey, `{"to":["u"],"type":"chat.message","data":{"name":"`+name+`"}}`)
		var answer struct{ IDs []protocol.EventID }
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.IDs) != 1 {
			t.Fatal(resp.Status, err)
		}
		r.append(&protocol.Envelope{ID: answer.IDs[0]}, "u")
		want = append(want, name)
	}
	c.resumed(srv, "u").sees(want...)

	// One id twice in one request is one event, the first of them.
	id := protocol.NewEventID()
	one := func(name string) string {
		return `{"id":"` + id.String() + `","to":["u"],"type":"chat.message","data":{"name":"` + name + `"}}`
	}
	for _, body := range []string{"[" + one("first") + "," + one("second") + "]", one("third")} {
		if resp := post(t, srv, apiKey, body); resp.StatusCode != http.StatusAccepted {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	if e, err := store.Get(t.Context(), id); err != nil || !strings.Contains(string(e.Data), "first") {
		t.Errorf("stored: %+v, %v", e, err)
	}

	if err := store.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if resp := post(t, srv, apiKey, `{"to":["u"],"type":"chat.message","data":{}}`); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d after %v", resp.StatusCode, time.Since(begin))
	}
}
