package socket

import (
	"context"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
	"github.com/lastmile-gateway/lastmile/socket/internal/session"
)

const (
	// closePatience is how long a peer may take to answer a close.
	closePatience = time.Second
	// closeGrace is how long the close frame may take to get out past what is being written, and
	// flushGrace how long the queue may when the server leaves.
	closeGrace = 2 * time.Second
	flushGrace = 5 * time.Second
)

// conn is one WebSocket and its session: a reader and a writer goroutine, and a state machine that
// whoever has something for it moves on, under mu. Its scripts run on the server's runner.
type conn struct {
	// fixed after construction
	s      *Server
	ws     *websocket.Conn
	id     protocol.SessionID
	since  time.Time
	ctx    context.Context // of the connection and nothing else
	cancel context.CancelFunc
	wake   chan struct{} // one slot: the writer has something to do
	wg     sync.WaitGroup
	bearer *identity // from the upgrade

	closedWith protocol.CloseCode // owned by the writer, then by run: what it closed with
	peerCode   protocol.CloseCode // owned by the reader: what it read

	mu        sync.Mutex
	m         *session.Machine // nil before hello
	identity  *identity
	code      protocol.CloseCode // to close with, before there is m
	started   bool               // there is m, or there was
	scheduled bool               // the runner knows of a script
	armed     time.Time          // when the writer wakes by itself
	kill      *time.Timer
	publish   publishQueue
}

func newConn(s *Server, ws *websocket.Conn, id *identity) *conn {
	c := &conn{s: s, ws: ws, id: protocol.NewSessionID(), since: time.Now(), wake: make(chan struct{}, 1), bearer: id}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// serve is the whole of a connection that conns knows.
func (c *conn) serve() {
	defer c.s.conns.leave(c)
	defer c.cancel()
	c.s.metrics.sessions.Inc()
	defer c.s.metrics.sessions.Dec()
	c.run()
}

// run serves the connection until its end.
func (c *conn) run() {
	c.wg.Go(c.write)
	c.readSafely()
	c.cancel()
	c.wg.Wait()
	if c.closedWith == 0 {
		c.closedWith = c.peerCode
	}
	c.s.metrics.closed(c.closedWith)
	c.end()
}

// begin makes the session. From then on the hub gives it the user's pairs, which wait in its queue
// until it is registered: so no event is routed past it.
func (c *conn) begin(id *identity, hello *protocol.Hello) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started || c.code != 0 {
		return
	}
	c.started, c.identity = true, id
	c.s.hub.add(id.user, c)
	// Only now: a fence that missed us in the hub has already put the new instance in place.
	at := registry.Location{Field: registry.Field{Instance: c.s.Instance(), Session: c.id}, Since: c.since, Device: hello.Device}
	now := time.Now()
	c.m = session.New(&c.s.sessions, session.Client{
		User: id.user, At: at, Acks: hello.Acks, Resume: hello.Resume, Issued: id.issued, Expires: id.expires,
	}, now)
	c.afterLocked(now)
}

// end is the end of the connection: what the session still holds goes to the user's other sessions, or
// is handed on.
func (c *conn) end() {
	c.mu.Lock()
	if c.kill != nil {
		c.kill.Stop()
	}
	if c.m == nil {
		c.mu.Unlock()
		return
	}
	c.s.hub.remove(c.m.User(), c)
	now := time.Now()
	tickets := c.m.End(now)
	c.afterLocked(now)
	c.mu.Unlock()
	for _, t := range tickets {
		tk := t.(*ticket)
		if l := tk.tracker.life; !tk.settled.Load() {
			l.release(tk)
		}
	}
}

// do moves the session on, if there is one.
func (c *conn) do(f func(m *session.Machine, now time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		return
	}
	now := time.Now()
	f(c.m, now)
	c.afterLocked(now)
}

// push gives the session a pair; false: it is over, and holds it not.
func (c *conn) push(now time.Time, tk *ticket) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := session.Delivery{Event: tk.event, Pair: tk.pair, Redelivered: tk.entry.attempt > 0, Ticket: tk}
	if !c.m.Push(now, d) {
		return false
	}
	c.afterLocked(now)
	return true
}

// shut closes the connection with code, unless it has one already.
func (c *conn) shut(code protocol.CloseCode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shutLocked(code)
}

func (c *conn) shutLocked(code protocol.CloseCode) {
	if c.m != nil {
		c.m.Close(code)
		c.afterLocked(time.Now())
		return
	}
	if c.code == 0 {
		c.code = code
	}
	wake(c.wake)
}

// send queues a ready frame.
func (c *conn) send(frame []byte) {
	c.do(func(m *session.Machine, _ time.Time) { m.Send(frame) })
}

// afterLocked starts what the session's last step asks for.
func (c *conn) afterLocked(now time.Time) {
	if !c.scheduled && c.m.Wants(now) {
		c.scheduled = true
		c.s.runner.submit(c.work)
	}
	code, closed := c.m.Closed()
	if closed && c.kill == nil {
		grace := closeGrace
		if code == protocol.CloseRestart {
			grace = flushGrace
		}
		c.kill = time.AfterFunc(grace, c.cancel)
	}
	due := c.m.Deadline(now)
	if closed || c.m.Pending() || (!due.IsZero() && (c.armed.IsZero() || due.Before(c.armed))) {
		wake(c.wake)
	}
}

// work runs the session's scripts, one after another, as long as it has any.
func (c *conn) work() {
	for {
		c.mu.Lock()
		sc := c.m.Script(time.Now())
		if sc == nil {
			again := c.m.Ended() && !c.m.Gone()
			c.scheduled = again
			until := c.m.PausedUntil()
			c.mu.Unlock()
			// A session that is over has no writer whose timer would bring it back here.
			if !again || !sleep(c.s.scripts, time.Until(until)) {
				return
			}
			continue
		}
		c.mu.Unlock()
		if sc.Op == session.OpFetch {
			c.s.slow.submit(func() {
				c.runScript(sc)
				c.s.runner.submit(c.work)
			})
			return
		}
		c.runScript(sc)
	}
}

func (c *conn) runScript(sc *session.Script) {
	answer := c.exec(sc)
	c.do(func(m *session.Machine, now time.Time) { m.Done(now, sc, answer) })
}

// homed says whether the session is registered under that instance, or on its way out.
func (c *conn) homed(id protocol.InstanceID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		return true
	}
	_, closed := c.m.Closed()
	return closed || c.m.Home().Instance == id
}
