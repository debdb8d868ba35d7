package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// dialer dials the connections of one client and counts them, so that a
// connection that takes the place of a broken one is known as such.
type dialer struct {
	// fixed after construction
	tls    *tls.Config // nil: plain
	onDial func()      // may be nil

	mu   sync.Mutex
	lost int // connections that were made and are closed, and that no dial has made up for yet
}

// dial never fails towards go-redis: it hands over a connection whose every use
// answers the error. A failed dial would make its pool refuse commands for a
// second, and start a goroutine that probes the address and outlives Close.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := d.connect(ctx, network, addr)
	if err != nil {
		return brokenConn{&dialError{addr: addr, cause: err}}, nil
	}
	if d.replaces() && d.onDial != nil {
		d.onDial()
	}
	return d.track(c), nil
}

func (d *dialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	raw, err := (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext(ctx, network, addr)
	if err != nil || d.tls == nil {
		return raw, err
	}
	c := tls.Client(raw, d.tls)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	return c, nil
}

// replaces says whether a dial makes up for a lost connection. A pool of four of
// which one was used so far, and lost, has three first dials to come, which say nothing.
func (d *dialer) replaces() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost == 0 {
		return false
	}
	d.lost--
	return true
}

func (d *dialer) lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost++
}

// track wraps c so that its end is counted. A plain connection keeps SyscallConn,
// by which go-redis finds dead idle connections without sending; over TLS there
// is none, since peeking at the socket would see the protocol's own records.
func (d *dialer) track(c net.Conn) net.Conn {
	t := &trackedConn{Conn: c, lost: sync.OnceFunc(d.lose)}
	if s, ok := c.(syscall.Conn); ok {
		return &trackedSyscallConn{trackedConn: t, sys: s}
	}
	return t
}

type trackedConn struct {
	net.Conn
	lost func()
}

// Close counts the connection as lost before the pool can dial another.
func (c *trackedConn) Close() error {
	c.lost()
	return c.Conn.Close()
}

type trackedSyscallConn struct {
	*trackedConn
	sys syscall.Conn
}

func (c *trackedSyscallConn) SyscallConn() (syscall.RawConn, error) { return c.sys.SyscallConn() }

// dialError is the error of a dial. It answers errors.Is and errors.As for its
// cause but has no Unwrap: go-redis unwraps what a new connection answers once,
// which would take the address away.
type dialError struct {
	addr  string
	cause error
}

func (e *dialError) Error() string {
	return fmt.Sprintf("dial redis %s: %v", e.addr, innermost(e.cause))
}

func (e *dialError) Is(target error) bool { return errors.Is(e.cause, target) }

func (e *dialError) As(target any) bool { return errors.As(e.cause, target) }

// innermost leaves "dial tcp host:port:" away, which is said already.
func innermost(err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		return op.Err
	}
	return err
}

// brokenConn is a connection that was never made.
type brokenConn struct{ err error }

func (c brokenConn) Read([]byte) (int, error)         { return 0, c.err }
func (c brokenConn) Write([]byte) (int, error)        { return 0, c.err }
func (c brokenConn) Close() error                     { return nil }
func (c brokenConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c brokenConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c brokenConn) SetDeadline(time.Time) error      { return nil }
func (c brokenConn) SetReadDeadline(time.Time) error  { return nil }
func (c brokenConn) SetWriteDeadline(time.Time) error { return nil }
