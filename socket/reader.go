package socket

import (
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/coder/websocket"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/socket/internal/session"
)

// readSafely is read, but that a frame which makes it panic ends its own connection and no other.
func (c *conn) readSafely() {
	defer func() {
		if p := recover(); p != nil {
			c.s.log.Error("reading a frame panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			c.shut(protocol.CloseInternal)
			<-c.ctx.Done() // the writer closes
		}
	}()
	c.read()
}

// read takes the client's frames. It only parses and queues: while it does anything else, no pong is
// seen. It has no deadline: a client may be silent for as long as it answers pings.
func (c *conn) read() {
	for {
		typ, b, err := c.ws.Read(c.ctx)
		if err != nil {
			if c.peerCode = protocol.CloseCode(websocket.CloseStatus(err)); c.peerCode < 0 {
				c.peerCode = codeLost
			}
			return
		}
		if typ != websocket.MessageText {
			c.shut(protocol.CloseProtocolError)
			continue
		}
		if len(b) > protocol.MaxClientFrame {
			c.tooLarge(b)
			continue
		}
		frame, err := protocol.DecodeFrame(b)
		if err != nil {
			c.badFrame(err)
			continue
		}
		c.frame(frame)
	}
}

func (c *conn) begun() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started
}

// tooLarge and badFrame are answered on a session; before hello they end the connection.
func (c *conn) tooLarge(b []byte) {
	if !c.begun() {
		c.shut(protocol.CloseTooBig)
		return
	}
	c.send(protocol.ErrorFrame{Ref: refOf(b), Code: protocol.ErrorTooLarge, Message: "the frame is larger than maxFrame"}.AppendTo(nil))
}

// refOf is the ref of a publish frame that is refused: else its client would wait for an answer for ever.
func refOf(b []byte) string {
	frame, err := protocol.DecodeFrame(b)
	if p, ok := frame.(*protocol.Publish); ok {
		return p.Ref
	}
	if fe, ok := errors.AsType[*protocol.FrameError](err); ok {
		return fe.Ref
	}
	return ""
}

func (c *conn) badFrame(err error) {
	var fe *protocol.FrameError
	switch {
	case !errors.As(err, &fe):
		c.shut(protocol.CloseNotUTF8)
	case !c.begun():
		c.shut(protocol.CloseProtocolError)
	default:
		c.send(fe.Frame().AppendTo(nil))
	}
}

func (c *conn) frame(frame any) {
	if hello, ok := frame.(*protocol.Hello); ok {
		c.hello(hello)
		return
	}
	if !c.begun() {
		if c.bearer == nil {
			c.shut(protocol.CloseProtocolError)
			return
		}
		c.begin(c.bearer, &protocol.Hello{}) // it does not resume
	}
	switch f := frame.(type) {
	case *protocol.Ack:
		c.ack(f)
	case *protocol.Ping:
		c.send(protocol.Pong{}.AppendTo(nil))
	case *protocol.TokenFrame:
		c.token(f.Token)
	case *protocol.Publish:
		c.queuePublish(f)
	}
}

func (c *conn) hello(h *protocol.Hello) {
	if c.begun() {
		// Perhaps it only came too late to resume: no reason to lose the client for good.
		c.send(protocol.ErrorFrame{Code: protocol.ErrorBadFrame, Message: "hello comes once, and first"}.AppendTo(nil))
		return
	}
	id := c.bearer
	if h.Token != "" || id == nil {
		var err error
		if id, err = c.s.verifier.verify(h.Token); err != nil {
			c.shut(closeCode(err))
			return
		}
		if c.bearer != nil && c.bearer.user != id.user {
			c.shut(protocol.CloseBadToken)
			return
		}
	}
	c.begin(id, h)
}

func (c *conn) ack(a *protocol.Ack) {
	good := true
	c.do(func(m *session.Machine, now time.Time) { good = m.Ack(now, a.N, a.Seq) })
	if !good {
		c.send(protocol.ErrorFrame{Code: protocol.ErrorBadAck, Message: "/seq is ahead of what was sent"}.AppendTo(nil))
	}
}

// token takes a fresh token of the same user.
func (c *conn) token(token string) {
	id, err := c.s.verifier.verify(token)
	switch {
	case err != nil:
		c.shut(closeCode(err))
	case id.user != c.user():
		c.shut(protocol.CloseBadToken)
	default:
		c.do(func(m *session.Machine, _ time.Time) {
			c.identity = id
			m.Token(id.issued, id.expires)
		})
	}
}

func (c *conn) user() protocol.UserID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.identity.user
}
