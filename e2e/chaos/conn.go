package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

const (
	welcomeWithin = 10 * time.Second
	answerWithin  = 10 * time.Second
)

// conn is one WebSocket of a browser, from dialling to its end.
type conn struct {
	// fixed after construction
	browser *browser
	server  *node
	network *network
	socket  *websocket.Conn
	ctx     context.Context
	end     context.CancelFunc
	done    chan struct{}      // closed when the reader has ended
	leave   chan time.Duration // a goaway: when to open the next one
	resume  *position          // what it asked for; nil: nothing
	live    atomic.Bool        // false: nothing of it is handled or acked any more
	heard   atomic.Int64       // when the last frame came, unix ns
	ping    atomic.Int64       // the server's pingInterval, ns
	ended   atomic.Int64       // when it was lost or closed, unix ns; 0: it stands
	why     error              // why the reader ended; read after done

	// owned by the receiver
	n       int64
	epoch   string
	handled int64
	acked   int64
	ackedAt time.Time

	writing sync.Mutex
}

// open dials, says hello and waits for the welcome. The connection that it replaces serves until then.
func (b *browser) open(ctx context.Context, group *sync.WaitGroup, replaces *conn) (*conn, error) {
	limited, stop := context.WithTimeout(ctx, welcomeWithin)
	defer stop()
	at := b.random.IntN(len(b.network.proxies))
	socket, response, err := websocket.Dial(limited, "ws://"+b.network.proxies[at].Addr()+"/v1/ws", &websocket.DialOptions{
		HTTPClient: direct, Subprotocols: []string{"lastmile.v1"},
	})
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("dial: %s", response.Status)
	}
	socket.SetReadLimit(1 << 20)
	c := &conn{
		browser: b, server: b.servers[at], network: b.network, socket: socket,
		done: make(chan struct{}), leave: make(chan time.Duration, 1), resume: b.receiver.resume(),
	}
	c.ctx, c.end = context.WithCancel(ctx)
	c.live.Store(true)
	hello := map[string]any{"type": "hello", "token": b.token, "acks": true, "device": "chaos"}
	if c.resume != nil {
		hello["resume"] = c.resume
	}
	if err := c.write(hello); err != nil {
		c.close()
		return nil, err
	}
	welcomed := make(chan struct{})
	group.Go(func() { c.read(replaces, welcomed) })
	select {
	case <-welcomed:
		group.Go(c.watch)
		return c, nil
	case <-c.done:
		return nil, c.why
	case <-limited.Done():
		c.close()
		<-c.done
		return nil, fmt.Errorf("no welcome: %w", limited.Err())
	}
}

// close drops it without a word, as a lost network does.
func (c *conn) close() {
	if c.live.Swap(false) {
		c.ended.Store(time.Now().UnixNano())
	}
	c.end()
	_ = c.socket.CloseNow()
}

// bye closes it in good order, as a page that is closed does. It waits for nobody.
func (c *conn) bye() {
	if c.live.Swap(false) {
		c.ended.Store(time.Now().UnixNano())
	}
	closing, cancel := context.WithTimeout(c.ctx, time.Second)
	defer cancel()
	stop := context.AfterFunc(closing, func() { _ = c.socket.CloseNow() })
	defer stop()
	_ = c.socket.Close(websocket.StatusNormalClosure, "bye")
	c.close()
}

func (c *conn) read(replaces *conn, welcomed chan struct{}) {
	defer close(c.done)
	defer c.close()
	first := true
	for {
		_, raw, err := c.socket.Read(c.ctx)
		if err != nil {
			c.why = err
			return
		}
		c.heard.Store(time.Now().UnixNano())
		var f frame
		if err := json.Unmarshal(raw, &f); err != nil {
			c.browser.fault("a frame is no JSON: %v", err)
			c.why = err
			return
		}
		if f.Type == "welcome" && first {
			first = false
			if replaces != nil {
				replaces.close() // whatever it still had comes again on this one
			}
			c.browser.within(time.Duration(f.ReconnectWithin) * ms)
			c.ping.Store(max(f.PingInterval, 1) * int64(ms))
			close(welcomed)
		} else if first && f.Type != "goaway" { // a server may leave before it can welcome anybody
			c.browser.fault("the first frame is %s %s %s", f.Type, f.Code, f.Message)
		}
		c.take(f)
	}
}

func (c *conn) take(f frame) {
	switch f.Type {
	case "welcome", "events":
		c.browser.receiver.push(c, f)
	case "goaway":
		select {
		case c.leave <- time.Duration(f.ReconnectAfter) * ms:
		default:
		}
	case "error":
		c.browser.fault("error frame: %s: %s", f.Code, f.Message)
	}
}

// watch pings when nothing came for the interval, and gives up when nothing answers.
func (c *conn) watch() {
	for {
		silent := time.Since(time.Unix(0, c.heard.Load()))
		if rest := time.Duration(c.ping.Load()) - silent; rest > 0 {
			if !pause(c.ctx, rest) {
				return
			}
			continue
		}
		before := c.heard.Load()
		if c.write(map[string]any{"type": "ping"}) != nil || !pause(c.ctx, answerWithin) {
			c.close()
			return
		}
		if c.heard.Load() == before {
			c.close()
			return
		}
	}
}

func (c *conn) write(value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(c.ctx, answerWithin)
	defer cancel()
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.socket.Write(limited, websocket.MessageText, raw)
}

// endedBy says whether it had ended at a time.
func (c *conn) endedBy(at time.Time) bool {
	ended := c.ended.Load()
	return ended != 0 && !time.Unix(0, ended).After(at)
}
