package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/golang-jwt/jwt/v5"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// position is where a client is in its user's log.
type position struct {
	Epoch string `json:"epoch"`
	Seq   int64  `json:"seq"`
	ID    string `json:"id"`
}

type cloudEvent struct {
	SpecVersion string          `json:"specversion"`
	ID          string          `json:"id"`
	Source      string          `json:"source"`
	Type        string          `json:"type"`
	Time        string          `json:"time"`
	Subject     string          `json:"subject"`
	Data        json.RawMessage `json:"data"`
}

type delivery struct {
	Seq         int64      `json:"seq"`
	Redelivered bool       `json:"redelivered"`
	Event       cloudEvent `json:"event"`
}

// frame is any frame from the server.
type frame struct {
	Type string `json:"type"`
	position
	N               int64      `json:"n"`
	Session         string     `json:"session"`
	User            string     `json:"user"`
	Instance        string     `json:"instance"`
	Recovered       bool       `json:"recovered"`
	PingInterval    int64      `json:"pingInterval"`
	ReconnectWithin int64      `json:"reconnectWithin"`
	MaxFrame        int64      `json:"maxFrame"`
	Events          []delivery `json:"events"`
	Code            string     `json:"code"`
	Message         string     `json:"message"`
	Ref             string     `json:"ref"`
	Reason          string     `json:"reason"`
}

// device is one client of one user: it keeps its position and the ids it has seen over any number of
// connections, shows each event once, and acknowledges what it has shown.
type device struct {
	t      testing.TB
	user   string
	secret string

	// onReload is what the application does when the server can't vouch for its view; may be nil.
	onReload func()

	mu       sync.Mutex
	at       position
	resume   bool
	seen     map[string]bool
	shown    []cloudEvent
	seqs     []int64 // of every delivery that had one, shown or not
	repeated int     // deliveries of an id that was shown before
	welcomes []frame
	faults   []string
	conn     *connection
}

// connection is one WebSocket of a device.
type connection struct {
	socket *websocket.Conn
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid when done is closed
}

func newDevice(t testing.TB, user, secret string) *device {
	return &device{t: t, user: user, secret: secret, seen: map[string]bool{}}
}

// mint signs a token as an application's backend would.
func mint(t testing.TB, secret, user string) string {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": user, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// connect opens a connection to the server at base (http://host:port) and waits for its welcome.
func (d *device) connect(base string) {
	d.t.Helper()
	if err := d.tryConnect(base); err != nil {
		d.t.Fatalf("connect %s to %s: %v", d.user, base, err)
	}
}

func (d *device) tryConnect(base string) error {
	d.disconnect()
	dialling, stop := context.WithTimeout(context.Background(), 15*time.Second)
	defer stop()
	socket, _, err := websocket.Dial(dialling, "ws"+strings.TrimPrefix(base, "http")+"/v1/ws", &websocket.DialOptions{
		Subprotocols: []string{"lastmile.v1"},
	})
	if err != nil {
		return err
	}
	socket.SetReadLimit(1 << 20)
	hello := map[string]any{"type": "hello", "token": mint(d.t, d.secret, d.user), "acks": true, "device": "e2e"}
	d.mu.Lock()
	before := len(d.welcomes)
	if d.resume {
		hello["resume"] = d.at
	}
	d.mu.Unlock()
	if err := write(dialling, socket, hello); err != nil {
		socket.CloseNow()
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	conn := &connection{socket: socket, cancel: cancel, done: make(chan struct{})}
	d.mu.Lock()
	d.conn = conn
	d.mu.Unlock()
	welcomed := make(chan struct{})
	go d.read(ctx, conn, welcomed)
	d.t.Cleanup(d.disconnect)
	select {
	case <-welcomed:
		return nil
	case <-conn.done:
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.welcomes) > before {
			return nil
		}
		return conn.err
	case <-dialling.Done():
		return fmt.Errorf("no welcome: %w", dialling.Err())
	}
}

// disconnect drops the connection without a word, as a lost network does.
func (d *device) disconnect() {
	d.mu.Lock()
	conn := d.conn
	d.conn = nil
	d.mu.Unlock()
	if conn == nil {
		return
	}
	conn.cancel()
	conn.socket.CloseNow()
	<-conn.done
}

func (d *device) read(ctx context.Context, conn *connection, welcomed chan struct{}) {
	defer close(conn.done)
	n := int64(0)
	for {
		_, raw, err := conn.socket.Read(ctx)
		if err != nil {
			conn.err = err
			return
		}
		var f frame
		if err := json.Unmarshal(raw, &f); err != nil {
			d.fault("frame that is no JSON: %v", err)
			return
		}
		switch f.Type {
		case "welcome":
			n++
			d.welcome(f, n)
			if n == 1 {
				close(welcomed)
			}
			conn.err = write(ctx, conn.socket, map[string]any{"type": "ack", "n": n, "seq": f.Seq})
		case "events":
			if last := d.handle(f.Events); last > 0 {
				conn.err = write(ctx, conn.socket, map[string]any{"type": "ack", "n": n, "seq": last})
			}
		case "error":
			d.fault("error frame: %s: %s", f.Code, f.Message)
		}
		if conn.err != nil {
			return
		}
	}
}

func (d *device) welcome(f frame, n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.welcomes = append(d.welcomes, f)
	if f.N != n {
		d.faults = append(d.faults, fmt.Sprintf("welcome %d of the connection is numbered %d", n, f.N))
	}
	if f.User != d.user {
		d.faults = append(d.faults, fmt.Sprintf("welcome for %q", f.User))
	}
	if f.Recovered && d.resume && f.position != d.at {
		d.faults = append(d.faults, fmt.Sprintf("recovered at %v, resumed from %v", f.position, d.at))
	}
	d.at, d.resume = f.position, true
	if !f.Recovered && d.onReload != nil {
		d.onReload()
	}
}

// handle shows what is new and returns the greatest seq to acknowledge.
func (d *device) handle(deliveries []delivery) (last int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range deliveries {
		if one.Seq > 0 {
			d.seqs = append(d.seqs, one.Seq)
			if one.Seq <= d.at.Seq {
				d.faults = append(d.faults, fmt.Sprintf("seq %d after %d", one.Seq, d.at.Seq))
			}
			d.at.Seq, d.at.ID = one.Seq, one.Event.ID
			last = one.Seq
		}
		if d.seen[one.Event.ID] {
			d.repeated++
			continue
		}
		d.seen[one.Event.ID] = true
		d.shown = append(d.shown, one.Event)
	}
	return last
}

func (d *device) fault(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = append(d.faults, fmt.Sprintf(format, args...))
}

// ids returns the ids of what was shown, in the order in which it was.
func (d *device) ids() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]string, len(d.shown))
	for i, event := range d.shown {
		out[i] = event.ID
	}
	return out
}

func (d *device) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.shown)
}

func (d *device) lastWelcome() frame {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.welcomes[len(d.welcomes)-1]
}

// check fails the test for every breach of the protocol that the device saw.
func (d *device) check() {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, fault := range d.faults {
		d.t.Errorf("%s: %s", d.user, fault)
	}
}

// awaitShown waits until the device has shown that many events.
func (d *device) awaitShown(within time.Duration, count int) {
	d.t.Helper()
	testkit.Eventually(d.t, within, fmt.Sprintf("%s shows %d events", d.user, count), func() bool {
		return d.count() >= count
	})
}

func write(ctx context.Context, socket *websocket.Conn, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return socket.Write(limited, websocket.MessageText, raw)
}
