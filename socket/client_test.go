package socket_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
)

func newReader(s string) io.Reader { return strings.NewReader(s) }

func postReader(t *testing.T, n *node, key string, body io.Reader) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.http.URL+"/v1/events", body)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// frame is any frame of the server.
type frame struct {
	Type           string
	N              int64
	Session        protocol.SessionID
	User           protocol.UserID
	Instance       protocol.InstanceID
	Epoch          protocol.Epoch
	Seq            protocol.Seq
	ID             protocol.EventID
	Recovered      bool
	PingInterval   int
	MaxFrame       int
	ReconnectAfter int
	Ref            string
	Code           protocol.ErrorCode
	Message        string
	Events         []item
}

type item struct {
	Seq         protocol.Seq
	Redelivered bool
	Event       struct {
		ID   protocol.EventID
		Data struct{ Name string }
	}
}

// client is a WebSocket client that knows the protocol page only. It acks what it gets, unless told
// not to, and drops what it has seen.
type client struct {
	t      *testing.T
	ws     *websocket.Conn
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	quiet    bool // no acks
	frames   []frame
	names    []string // shown, in order
	seen     map[protocol.EventID]bool
	doubles  int
	position *protocol.Position
	n        int64
	code     websocket.StatusCode
	reason   string
}

type hello map[string]any

// dial opens a WebSocket and says hello; nil: it says nothing.
func dial(t *testing.T, url string, h hello, headers ...string) *client {
	t.Helper()
	c, err := tryDial(t, url, h, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tryDial(t *testing.T, url string, h hello, headers ...string) (*client, error) {
	ctx, cancel := context.WithCancel(context.Background())
	opts := &websocket.DialOptions{HTTPHeader: http.Header{}, Subprotocols: []string{"lastmile.v1"}}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Sec-WebSocket-Protocol" {
			opts.Subprotocols = nil
			if headers[i+1] != "" {
				opts.Subprotocols = []string{headers[i+1]}
			}
			continue
		}
		opts.HTTPHeader.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true}
	opts.HTTPClient = &http.Client{Transport: transport}
	ws, _, err := websocket.Dial(ctx, url, opts)
	if err != nil {
		cancel()
		return nil, err
	}
	ws.SetReadLimit(1 << 20)
	c := &client{t: t, ws: ws, cancel: cancel, done: make(chan struct{}), seen: map[protocol.EventID]bool{}}
	go c.read(ctx)
	t.Cleanup(c.drop)
	if h != nil {
		if h["quiet"] == true {
			c.quiet = true
			delete(h, "quiet")
		}
		h["type"] = "hello"
		c.send(h)
	}
	return c, nil
}

// connect is dial for a user, with acks, and waits for the welcome.
func connect(t *testing.T, n *node, user string, more ...hello) *client {
	t.Helper()
	h := hello{"token": token(user), "acks": true}
	for _, m := range more {
		for k, v := range m {
			h[k] = v
		}
	}
	c := dial(t, n.url(), h)
	c.welcome(1)
	return c
}

// resumed is connect where c stood.
func (c *client) resumed(n *node, user string) *client {
	c.t.Helper()
	c.mu.Lock()
	p, seen := *c.position, c.seen
	c.mu.Unlock()
	next := dial(c.t, n.url(), hello{"token": token(user), "acks": true,
		"resume": map[string]any{"epoch": p.Epoch, "seq": p.Seq, "id": p.ID}})
	next.mu.Lock()
	for id := range seen {
		next.seen[id] = true
	}
	next.mu.Unlock()
	next.welcome(1)
	return next
}

// drop breaks the connection without a word.
func (c *client) drop() {
	c.cancel()
	_ = c.ws.CloseNow()
	<-c.done
}

func (c *client) send(v any) {
	c.t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		c.t.Fatal(err)
	}
	c.sendRaw(websocket.MessageText, b)
}

func (c *client) sendRaw(typ websocket.MessageType, b []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = c.ws.Write(ctx, typ, b) // what comes of it is seen by what is read
}

func (c *client) read(ctx context.Context) {
	defer close(c.done)
	for {
		_, b, err := c.ws.Read(ctx)
		if err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.code = websocket.CloseStatus(err)
			var ce websocket.CloseError
			if errors.As(err, &ce) {
				c.reason = ce.Reason
			}
			return
		}
		var f frame
		if err := json.Unmarshal(b, &f); err != nil {
			c.t.Errorf("frame %q: %v", b, err)
			return
		}
		if ack := c.take(f); ack != nil {
			b, _ := json.Marshal(ack)
			_ = c.ws.Write(ctx, websocket.MessageText, b)
		}
	}
}

func (c *client) take(f frame) map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames = append(c.frames, f)
	switch f.Type {
	case "welcome":
		c.n = f.N
		c.position = &protocol.Position{Epoch: f.Epoch, Seq: f.Seq, ID: f.ID}
	case "events":
		for _, it := range f.Events {
			if c.seen[it.Event.ID] {
				c.doubles++
			} else {
				c.seen[it.Event.ID] = true
				c.names = append(c.names, it.Event.Data.Name)
			}
			if it.Seq > 0 {
				c.position.Seq, c.position.ID = it.Seq, it.Event.ID
			}
		}
	default:
		return nil
	}
	if c.quiet {
		return nil
	}
	return map[string]any{"type": "ack", "n": c.n, "seq": c.position.Seq}
}

// ackAll acks what came, and from now on all.
func (c *client) ackAll() {
	c.mu.Lock()
	c.quiet = false
	ack := map[string]any{"type": "ack", "n": c.n, "seq": c.position.Seq}
	c.mu.Unlock()
	c.send(ack)
}

func (c *client) all() []frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.frames)
}

func (c *client) shown() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.names)
}

// find waits for a frame.
func (c *client) find(what string, match func(frame) bool) frame {
	c.t.Helper()
	var found frame
	testkit.Eventually(c.t, patience, what, func() bool {
		for _, f := range c.all() {
			if match(f) {
				found = f
				return true
			}
		}
		return false
	})
	return found
}

func (c *client) welcome(n int64) frame {
	c.t.Helper()
	return c.find(fmt.Sprintf("welcome %d", n), func(f frame) bool { return f.Type == "welcome" && f.N == n })
}

// sees waits until exactly these events were shown, in order.
func (c *client) sees(names ...string) {
	c.t.Helper()
	testkit.Eventually(c.t, patience, fmt.Sprintf("%d events", len(names)), func() bool { return len(c.shown()) >= len(names) })
	if got := c.shown(); !slices.Equal(got, names) {
		c.t.Errorf("shown: %v, want %v", got, names)
	}
}

// closedWith waits for the end of the connection.
func (c *client) closedWith(code protocol.CloseCode) {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		c.t.Fatal("the connection stays open")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if int(c.code) != int(code) || c.reason != code.Reason() {
		c.t.Errorf("closed with %d %q, want %d %q", c.code, c.reason, code, code.Reason())
	}
}

func (c *client) open() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return all
}
