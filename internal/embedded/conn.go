package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/embedded/store"
	"github.com/lastmile-gateway/lastmile/internal/embedded/wire"
)

// writeTimeout bounds a write to a client that reads no more.
const writeTimeout = 30 * time.Second

// connections are the open ones, so that Run can close them all.
type connections struct {
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
	lastID int32
}

func (c *connections) add(n net.Conn) (id int32, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, false
	}
	if c.open == nil {
		c.open = map[net.Conn]struct{}{}
	}
	c.open[n] = struct{}{}
	c.lastID++
	return c.lastID, true
}

func (c *connections) remove(n net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, n)
}

func (c *connections) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for n := range c.open {
		_ = n.Close()
	}
}

// serve answers one connection's messages one after another. A second goroutine
// reads ahead by one message, so that a client which is gone ends a command that
// waits for it.
func (m *Mongo) serve(ctx context.Context, n net.Conn) {
	defer func() { _ = n.Close() }()
	id, ok := m.connections.add(n)
	if !ok {
		return
	}
	defer m.connections.remove(n)
	ctx, cancel := context.WithCancel(ctx)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer func() { _ = n.Close() }() // before the reader is waited for
	defer cancel()

	messages := make(chan *wire.Message)
	reader.Go(func() {
		defer cancel()
		m.readAll(ctx, n, messages)
	})
	for replyID := int32(1); ; replyID++ {
		select {
		case <-ctx.Done():
			return
		case msg := <-messages:
			if err := m.answer(ctx, n, id, replyID, msg); err != nil {
				return
			}
		}
	}
}

func (m *Mongo) readAll(ctx context.Context, n net.Conn, messages chan<- *wire.Message) {
	r := bufio.NewReaderSize(n, 32<<10)
	for {
		msg, err := wire.Read(r)
		if err != nil {
			if errors.Is(err, wire.ErrMalformed) {
				m.log.Warn("close connection", "remote", n.RemoteAddr().String(), "error", err)
			}
			return
		}
		select {
		case messages <- msg:
		case <-ctx.Done():
			return
		}
	}
}

func (m *Mongo) answer(ctx context.Context, n net.Conn, connID, replyID int32, msg *wire.Message) error {
	reply, err := m.handle(ctx, connID, msg)
	if err != nil {
		m.log.Error("answer command", "error", err)
		return err
	}
	if msg.NoReply {
		return nil
	}
	if err := n.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err = n.Write(wire.AppendReply(make([]byte, 0, len(reply)+64), msg, replyID, reply))
	return err
}

// protect turns a panic into an error of the one command that it struck: lungo
// panics on some values that it doesn't know.
func (m *Mongo) protect(name string, err *error) {
	if p := recover(); p != nil {
		m.log.Error("command panicked", "command", name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		*err = store.Errorf(store.CodeInternalError, "%s: internal error: %v", name, p)
	}
}
