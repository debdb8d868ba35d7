package socket

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// frames are lent to writers for one write each: idle sessions hold no buffer.
var frames = sync.Pool{New: func() any { return new(protocol.EventsFrame) }}

// write is the connection's only writer, and the clock of its session.
func (c *conn) write() {
	defer c.cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	started := time.Now()
	nextPing := started.Add(c.s.cfg.PingInterval)
	var pong chan error
	for {
		now := time.Now()
		if pong == nil && !now.Before(nextPing) {
			nextPing = now.Add(c.s.cfg.PingInterval)
			pong = c.ping()
		}
		wrote, code := c.step(now, started)
		switch {
		case wrote:
			continue
		case code != 0:
			c.closedWith = code
			closeWS(c.ws, code, c.cancel)
			return
		}
		timer.Reset(time.Until(c.arm(now, started, nextPing)))
		select {
		case <-c.wake:
		case <-timer.C:
		case err := <-pong:
			pong = nil
			if errors.Is(err, context.DeadlineExceeded) {
				c.shut(protocol.CloseNoPong)
			}
		case <-c.ctx.Done():
			return
		}
	}
}

// ping waits for its pong beside the writer: the reader takes it.
func (c *conn) ping() chan error {
	done := make(chan error, 1)
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, c.s.cfg.PongTimeout)
		defer cancel()
		done <- c.ws.Ping(ctx)
	})
	return done
}

// step writes one frame, if there is one; else code is what to close with.
func (c *conn) step(now, started time.Time) (wrote bool, code protocol.CloseCode) {
	c.mu.Lock()
	if c.m == nil {
		code = c.code
		c.mu.Unlock()
		if code == 0 {
			code = c.beforeHello(now, started)
		}
		return false, code
	}
	c.m.Tick(now)
	f := frames.Get().(*protocol.EventsFrame)
	defer frames.Put(f)
	frame, w := c.m.Take(now, f)
	code, _ = c.m.Closed()
	c.afterLocked(now)
	c.mu.Unlock()
	if frame == nil {
		return false, code
	}
	err := c.writeFrame(frame)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		return false, c.lostLocked(err)
	}
	now = time.Now()
	c.m.Written(now, w)
	c.afterLocked(now)
	return true, 0
}

// codeLost is no code of the wire: the connection broke, and takes no close frame.
const codeLost protocol.CloseCode = 1006

// lostLocked is what a connection that took no frame ends with: perhaps it was to be closed anyway.
func (c *conn) lostLocked(err error) protocol.CloseCode {
	if code, closed := c.m.Closed(); closed {
		return code
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return protocol.CloseSlowConsumer
	}
	return codeLost
}

func (c *conn) writeFrame(frame []byte) error {
	ctx, cancel := context.WithTimeout(c.ctx, c.s.cfg.WriteTimeout)
	defer cancel()
	return c.ws.Write(ctx, websocket.MessageText, frame)
}

// beforeHello keeps the times of a connection that has not said hello.
func (c *conn) beforeHello(now, started time.Time) protocol.CloseCode {
	switch {
	case c.bearer != nil && now.Sub(started) >= c.s.cfg.ResumeWait:
		c.begin(c.bearer, &protocol.Hello{})
	case c.bearer == nil && now.Sub(started) >= c.s.cfg.HelloTimeout:
		return protocol.CloseProtocolError
	}
	return 0
}

// arm chooses when the writer wakes by itself.
func (c *conn) arm(now, started, first time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	soon := func(t time.Time) {
		if !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	switch {
	case c.m != nil:
		soon(c.m.Deadline(now))
	case c.bearer != nil:
		soon(started.Add(c.s.cfg.ResumeWait))
	default:
		soon(started.Add(c.s.cfg.HelloTimeout))
	}
	c.armed = first
	return first
}
