package testkit_test

import (
	"bufio"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// echo answers every line with itself and counts them.
type echo struct {
	addr  string
	lines atomic.Int64
}

func newEcho(t testing.TB) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{addr: l.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { e.serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return e
}

func (e *echo) serve(c net.Conn) {
	defer c.Close()
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		e.lines.Add(1)
		if _, err := c.Write([]byte(line)); err != nil {
			return
		}
	}
}

type client struct {
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{c, bufio.NewReader(c)}
}

// ask sends a line and reads one within a time.
func (c *client) ask(line string, within time.Duration) (string, error) {
	if _, err := c.Write([]byte(line + "\n")); err != nil {
		return "", err
	}
	return c.read(within)
}

func (c *client) read(within time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	line, err := c.r.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

func timedOut(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

const (
	soon = 10 * time.Second
	long = 60 * time.Millisecond // long enough for what would come at once
)

func setupProxy(t testing.TB) (*testkit.Proxy, *echo) {
	t.Helper()
	e := newEcho(t)
	return testkit.NewProxy(t, e.addr), e
}

func works(t testing.TB, c *client) {
	t.Helper()
	if got, err := c.ask("hello", soon); err != nil || got != "hello" {
		t.Errorf("answer %q, %v", got, err)
	}
}

func TestProxy_passesAndCuts(t *testing.T) {
	t.Parallel()
	p, _ := setupProxy(t)
	a, b := dial(t, p.Addr()), dial(t, p.Addr())
	works(t, a)
	works(t, b)
	if n := p.Connections(); n != 2 {
		t.Errorf("%d connections", n)
	}
	p.Cut()
	for _, c := range []*client{a, b} {
		if _, err := c.read(soon); err == nil || timedOut(err) {
			t.Errorf("a cut connection reads %v", err)
		}
	}
	works(t, dial(t, p.Addr()))
	testkit.Eventually(t, soon, "the cut ones are forgotten", func() bool { return p.Connections() == 1 })
}

func TestProxy_refuses(t *testing.T) {
	t.Parallel()
	p, _ := setupProxy(t)
	p.Refuse()
	if c, err := net.Dial("tcp", p.Addr()); err == nil { // else the reset came before the dial was done
		defer c.Close()
		if _, err := (&client{c, bufio.NewReader(c)}).read(soon); err == nil || timedOut(err) {
			t.Errorf("a refused connection reads %v", err)
		}
	}
	p.Heal()
	works(t, dial(t, p.Addr()))
}

func TestProxy_delays(t *testing.T) {
	t.Parallel()
	p, _ := setupProxy(t)
	c := dial(t, p.Addr())
	p.Delay(long)
	before := time.Now()
	works(t, c)
	if took := time.Since(before); took < 2*long {
		t.Errorf("both ways took %s", took)
	}
}

func TestProxy_blackHoleLosesNothing(t *testing.T) {
	t.Parallel()
	p, e := setupProxy(t)
	c := dial(t, p.Addr())
	works(t, c)
	p.BlackHole()
	if _, err := c.ask("held", long); !timedOut(err) {
		t.Errorf("read through a black hole: %v", err)
	}
	fresh := dial(t, p.Addr())
	if _, err := fresh.ask("held too", long); !timedOut(err) {
		t.Errorf("a new connection reads %v", err)
	}
	if n := e.lines.Load(); n != 1 {
		t.Errorf("the server saw %d lines", n)
	}
	p.Heal()
	if got, err := c.read(soon); err != nil || got != "held" {
		t.Errorf("after healing %q, %v", got, err)
	}
	if got, err := fresh.read(soon); err != nil || got != "held too" {
		t.Errorf("after healing %q, %v", got, err)
	}
}

func TestProxy_dropsOneDirection(t *testing.T) {
	t.Parallel()
	p, e := setupProxy(t)
	c := dial(t, p.Addr())
	works(t, c)
	p.Drop(testkit.ToClient)
	if _, err := c.ask("answer is lost", long); !timedOut(err) {
		t.Errorf("read %v", err)
	}
	testkit.Eventually(t, soon, "the server saw it", func() bool { return e.lines.Load() == 2 })
	p.Heal()
	if _, err := c.read(soon); err == nil || timedOut(err) {
		t.Errorf("a stream with a hole goes on: %v", err)
	}

	c = dial(t, p.Addr())
	works(t, c)
	p.Drop(testkit.ToServer)
	if _, err := c.ask("never arrives", long); !timedOut(err) || e.lines.Load() != 3 {
		t.Errorf("read %v; the server saw %d lines", err, e.lines.Load())
	}
}

func TestProxy_swallowsOneReply(t *testing.T) {
	t.Parallel()
	p, e := setupProxy(t)
	other, c := dial(t, p.Addr()), dial(t, p.Addr())
	works(t, other)
	works(t, c)
	swallowed := p.SwallowReplyTo("XADD")
	works(t, other)
	works(t, c)
	if _, err := c.ask("XADD inbox", soon); err == nil || timedOut(err) {
		t.Errorf("the reply came, or nothing: %v", err)
	}
	<-swallowed
	if n := e.lines.Load(); n != 5 {
		t.Errorf("the server saw %d lines, want 5: the request itself arrives", n)
	}
	works(t, other)
	again := p.SwallowReply()
	if _, err := other.ask("anything", soon); err == nil || timedOut(err) {
		t.Errorf("the reply came, or nothing: %v", err)
	}
	<-again
	works(t, dial(t, p.Addr()))
}

func TestProxy_targetIsDown(t *testing.T) {
	t.Parallel()
	p := testkit.NewProxy(t, testkit.FreeAddr(t))
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		defer c.Close()
		if _, err := (&client{c, bufio.NewReader(c)}).read(soon); err == nil || timedOut(err) {
			t.Errorf("read %v", err)
		}
	}
}
