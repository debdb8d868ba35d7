package testkit

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// link is one connection through a proxy.
type link struct {
	proxy  *Proxy
	ctx    context.Context // ends with the link
	cancel context.CancelFunc
	client net.Conn
	lost   bool // bytes of it were dropped; guarded by proxy.mu
}

// run passes bytes in both directions until both have ended or the link is reset.
func (l *link) run(server net.Conn) {
	stop := context.AfterFunc(l.ctx, func() {
		abort(l.client)
		abort(server)
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { l.pump(ToServer, l.client, server) })
	both.Go(func() { l.pump(ToClient, server, l.client) })
	both.Wait()
	_ = l.client.Close()
	_ = server.Close()
}

// pump passes one direction on. An end of file is passed on as such; any error ends the link.
func (l *link) pump(d Direction, from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !l.forward(d, to, buf[:n]) {
			l.reset()
			return
		}
		if errors.Is(err, io.EOF) {
			halfClose(to)
			return
		}
		if err != nil {
			l.reset()
			return
		}
	}
}

func (l *link) forward(d Direction, to net.Conn, b []byte) bool {
	if delay := l.proxy.delay(); delay > 0 {
		pause(l.ctx, delay)
	}
	switch l.proxy.judge(l, d, b) {
	case cut:
		return false
	case lose:
		return true
	}
	_, err := to.Write(b)
	return err == nil
}

// reset ends both connections at once; what is under way is lost.
func (l *link) reset() {
	abort(l.client)
	l.cancel()
}

// abort closes with a reset and not in good order.
func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // on an error it is closed in good order
	}
	_ = c.Close()
}

func halfClose(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // the other direction may be on its way still
	}
}
