package socket_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/socket"
)

// One pair that nobody acks for minutes does not hold all that comes after it in memory.
func TestAnOldEntryHoldsNoOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.EmbeddedRedis(t))
	a := r.start("a").ready()
	slow := connect(t, a, "slow")
	c := connect(t, a, "u")
	slow.mu.Lock()
	slow.quiet = true
	slow.mu.Unlock()
	r.publish("held", "slow")
	slow.sees("held")
	for i := range 500 {
		r.publish(fmt.Sprint(i), "u")
	}
	testkit.Eventually(t, patience, "all are acked", func() bool {
		b, err := r.inbox.Backlog(t.Context(), a.Instance())
		return len(c.shown()) == 500 && err == nil && b.Length == 1
	})
	testkit.Eventually(t, patience, "they are forgotten", func() bool { return socket.Tracked(a.Server) < 100 })
}

// More pairs lose their last session at once than one step of the hand-on takes.
func TestManyPairsAreHandedOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.EmbeddedRedis(t))
	a := r.start("a").ready()
	const users = 5000
	var all []protocol.UserID
	env := r.event("e")
	p := r.rdb.Pipeline()
	for i := range users {
		u := protocol.UserID(fmt.Sprintf("u%d", i))
		all = append(all, u)
		// No session is there: the fields of another life.
		p.RPush(t.Context(), "user:{"+string(u)+"}:log", strings.Repeat("\x00", 16))
		p.HSet(t.Context(), "user:{"+string(u)+"}:at", "@epoch", "abcdefghijklmnop", "@base", "0", string(a.Instance())+"/abcdefghijkl", "1 x")
	}
	if _, err := p.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < users; i += 500 {
		r.route(env, all[i:i+500]...)
	}
	testkit.Eventually(t, 3*patience, "all are notified", func() bool { return len(r.notified()) == users })
	r.settled(a.Instance())
}

// What a user acks after Redis was emptied is seq 0: the registry knows of it at once.
func TestAnEmptyLogIsAcked(t *testing.T) {
	r, a := setup(t)
	c := connect(t, a, "u", hello{"quiet": true})
	if u, err := r.reg.Lookup(t.Context(), "u"); err != nil || u.HasAcked {
		t.Errorf("%+v, %v", u, err)
	}
	c.ackAll()
	testkit.Eventually(t, patience, "acked", func() bool {
		u, err := r.reg.Lookup(t.Context(), "u")
		return err == nil && u.HasAcked && u.Acked == 0
	})
}

func TestATooLargePublishIsAnswered(t *testing.T) {
	_, a := setup(t)
	c := connect(t, a, "u", hello{"token": token("u", mayPublish("x"))})
	c.send(map[string]any{"type": "publish", "ref": "big", "event": map[string]any{
		"to": []string{"u"}, "type": "x", "data": map[string]any{"x": strings.Repeat("x", protocol.MaxClientFrame)},
	}})
	f := c.find("the answer", func(f frame) bool { return f.Ref == "big" })
	if f.Type != "error" || f.Code != protocol.ErrorTooLarge {
		t.Errorf("%+v", f)
	}
}

// A client written from the protocol page alone: no acks, unknown fields, a resume at a position without an event.
func TestAMinimalClient(t *testing.T) {
	r, a := setup(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ws := minimal(t, ctx, a)
	say := func(frame string) {
		t.Helper()
		if err := ws.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	hear := func() (f frame) {
		t.Helper()
		_, b, err := ws.Read(ctx)
		if err == nil {
			err = json.Unmarshal(b, &f)
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	say(`{"type":"hello","token":"` + token("u") + `","acks":null,"device":null,"resume":null,"colour":{"a":[1]}}`)
	w := hear()
	if w.N != 1 || w.Recovered || w.Seq != 0 {
		t.Fatalf("%+v", w)
	}
	for _, wrong := range []string{`{"type":"ack","seq":7}`, `{"type":"ack"}`, `{"type":"ack","seq":-1}`, `{"type":"ack","seq":"0"}`} {
		say(wrong)
		if f := hear(); f.Code != protocol.ErrorBadAck {
			t.Errorf("%s: %+v", wrong, f)
		}
	}
	say(`{"type":"ack","seq":0,"n":7}`) // of a welcome that never was
	say(`{"type":"ack","seq":0}`)
	say(`{"type":"ping","x":1}`)
	if f := hear(); f.Type != "pong" {
		t.Errorf("%+v", f)
	}
	say(`{"type":"hello","token":"x"}`)
	if f := hear(); f.Code != protocol.ErrorBadFrame {
		t.Errorf("%+v", f)
	}
	r.publish("e1", "u")
	if f := hear(); len(f.Events) != 1 || f.Events[0].Seq != 1 {
		t.Errorf("%+v", f)
	}
	r.settled(a.Instance()) // the write was its ack
	_ = ws.CloseNow()
	r.publish("e2", "u")
	ws = minimal(t, ctx, a)
	say(`{"type":"hello","token":"` + token("u") + `","resume":{"epoch":"` + string(w.Epoch) + `","seq":0,"id":""}}`)
	if f := hear(); !f.Recovered || f.Seq != 0 || f.N != 1 {
		t.Errorf("%+v", f)
	}
	if f := hear(); len(f.Events) != 2 || f.Events[1].Seq != 2 {
		t.Errorf("%+v", f)
	}
	if err := ws.Write(ctx, websocket.MessageBinary, []byte(`{"type":"ping"}`)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ws.Read(ctx); websocket.CloseStatus(err) != websocket.StatusCode(protocol.CloseProtocolError) {
		t.Errorf("a binary frame: %v", err)
	}
}

func minimal(t *testing.T, ctx context.Context, n *node) *websocket.Conn {
	t.Helper()
	ws, _, err := websocket.Dial(ctx, n.url(), &websocket.DialOptions{
		Subprotocols: []string{"lastmile.v1"}, HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

// Every answer but a 202 is a problem, and none of them looks like success.
func TestProblemsOfTheAPI(t *testing.T) {
	_, a := setup(t)
	event := func(size int) string {
		return `{"to":["u"],"type":"t","data":{"x":"` + strings.Repeat("x", size-len(`{"x":""}`)) + `"}}`
	}
	head := "POST /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + apiKey + "\r\n"
	body := func(b string) string { return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(b), b) }
	for name, tc := range map[string]struct {
		request, allow string
		status         int
	}{
		"GET":           {request: "GET /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", status: 405, allow: "POST"},
		"POST on ws":    {request: "POST /v1/ws HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", status: 405, allow: "GET"},
		"other path":    {request: "GET /v1/nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", status: 404},
		"root":          {request: "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", status: 404},
		"broken chunks": {request: head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", status: 400},
		"no body":       {request: head + "Content-Length: 0\r\n\r\n", status: 422},
		"largest data":  {request: body(event(protocol.MaxData)), status: 202},
		"larger data":   {request: body(event(protocol.MaxData + 1)), status: 422},
		"1000":          {request: body("[" + strings.TrimSuffix(strings.Repeat(event(10)+",", 1000), ",") + "]"), status: 202},
		"1001":          {request: body("[" + strings.TrimSuffix(strings.Repeat(event(10)+",", 1001), ",") + "]"), status: 422},
		"not UTF-8":     {request: body(`{"to":["u"],"type":"t","data":{"x":"` + "\xff" + `"}}`), status: 422},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", strings.TrimPrefix(a.http.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(patience))
			if _, err := io.WriteString(c, tc.request); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != tc.status || resp.Header.Get("Allow") != tc.allow {
				t.Fatalf("%d %q, want %d: %s (%v)", resp.StatusCode, resp.Header.Get("Allow"), tc.status, b, err)
			}
			if ct := resp.Header.Get("Content-Type"); tc.status != 202 && ct != "application/problem+json" {
				t.Errorf("%s: %s", ct, b)
			}
		})
	}
}
