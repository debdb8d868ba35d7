package redisconn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

func TestConn_IsOneConnection(t *testing.T) {
	t.Parallel()
	m, s := mini(t)
	c := closing(t, s.Conn(nil))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
					p.Incr(t.Context(), "n")
					return nil
				})
				if err := errors.Join(err, c.Incr(t.Context(), "n").Err()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := m.TotalConnectionCount(); n != 1 {
		t.Errorf("%d connections were made, want 1", n)
	}
	if v, _ := m.Get("n"); v != "320" {
		t.Errorf("n is %s, want 320", v)
	}
}

func TestPool_NeverMoreThanItsSize(t *testing.T) {
	t.Parallel()
	m, s := mini(t)
	c := closing(t, s.Pool(3, func() { t.Error("a first dial was taken for a break") }))
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 20 {
				_, _ = c.TxPipelined(t.Context(), func(p redis.Pipeliner) error { p.Incr(t.Context(), "n"); return nil })
				ping(t, c)
			}
		})
	}
	wg.Wait()
	if n := m.TotalConnectionCount(); n > 3 {
		t.Errorf("%d connections were made, want at most 3", n)
	}
}

func TestOpen_DialsAll(t *testing.T) {
	t.Parallel()
	m, s := mini(t)
	c := closing(t, s.Pool(5, func() { t.Error("a first dial was taken for a break") }))
	if err := redisconn.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if n := m.CurrentConnectionCount(); n != 5 {
		t.Errorf("%d connections, want 5", n)
	}
	m.Close()
	if err := redisconn.Open(t.Context(), c); err == nil {
		t.Error("opened connections to a server that is gone")
	}
	if err := redisconn.Open(t.Context(), closing(t, redis.NewRing(&redis.RingOptions{}))); err == nil {
		t.Error("opened a client of another kind")
	}
}

// Redis restarts while nothing is sent; the pool drops the dead connection and
// dials anew, no command fails, and yet it is known as a break, before the answer.
func TestTrace_T34_SilentRedial(t *testing.T) {
	t.Parallel()
	m, s := mini(t)
	var breaks atomic.Int32
	c := closing(t, s.Conn(func() { breaks.Add(1) }))
	for want := range int32(4) {
		ping(t, c)
		if got := breaks.Load(); got != want {
			t.Fatalf("%d breaks after %d restarts", got, want)
		}
		m.Close()
		if err := m.Restart(); err != nil {
			t.Fatal(err)
		}
	}
}

// A pool that was opened reports the restart with the first command, and once
// for each connection that is replaced.
func TestPool_BreakOfEachConnection(t *testing.T) {
	t.Parallel()
	m, s := mini(t)
	var breaks atomic.Int32
	c := closing(t, s.Pool(4, func() { breaks.Add(1) }))
	if err := redisconn.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	m.Close()
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	ping(t, c)
	if got := breaks.Load(); got != 1 {
		t.Errorf("%d breaks after the first command, want 1", got)
	}
	if err := redisconn.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got := breaks.Load(); got != 4 {
		t.Errorf("%d breaks after every connection was replaced, want 4", got)
	}
}

// A pool that was not opened whole tells a connection that takes a broken one's
// place from one that is only late.
func TestPool_LateDialIsNoBreak(t *testing.T) {
	t.Parallel()
	m, s := mini(t)
	var breaks atomic.Int32
	c := closing(t, s.Pool(4, func() { breaks.Add(1) }))
	ping(t, c)
	m.Close()
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	ping(t, c)
	if err := redisconn.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got := breaks.Load(); got != 1 {
		t.Errorf("%d breaks, want 1", got)
	}
}

// The command whose reply is lost is done once, and fails.
func TestConn_NoRetry(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		direct := s.Client(t)
		proxy := testkit.NewProxy(t, direct.(*redis.Client).Options().Addr)
		var breaks atomic.Int32
		c := closing(t, parse(t, "redis://"+proxy.Addr()).Conn(func() { breaks.Add(1) }))
		ping(t, c)
		swallowed := proxy.SwallowReply()
		key := "no-retry-" + t.Name()
		_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error { p.Incr(t.Context(), key); return nil })
		<-swallowed
		if !redisconn.IsTrouble(err) {
			t.Errorf("%v, want trouble", err)
		}
		if n, err := c.Get(t.Context(), key).Int(); err != nil || n != 1 {
			t.Errorf("done %d times (%v), want once", n, err)
		}
		if got := breaks.Load(); got != 1 {
			t.Errorf("%d breaks, want 1", got)
		}
	})
}

// Commands fail at once while the server is away, and work at once when it is
// back, however many failed.
func TestConn_ServerAwayAndBack(t *testing.T) {
	t.Parallel()
	m, s := mini(t)
	var breaks atomic.Int32
	c := closing(t, s.Conn(func() { breaks.Add(1) }))
	ping(t, c)
	addr := m.Addr()
	m.Close()
	for range 20 {
		err := c.Ping(t.Context()).Err()
		if !redisconn.IsTrouble(err) {
			t.Fatalf("%v, want trouble", err)
		}
	}
	err := c.Ping(t.Context()).Err()
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), addr) {
		t.Errorf("%v, want a refused connection, with the address", err)
	}
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	ping(t, c)
	if got := breaks.Load(); got != 1 {
		t.Errorf("%d breaks, want 1: failed dials are none", got)
	}
}

// A blocking read may block for longer than other commands may take.
func TestConn_BlocksPastTheTimeout(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		c := closing(t, s.Server().Conn(func() { t.Error("the connection was replaced") }))
		if err := c.XGroupCreateMkStream(t.Context(), "s", "g", "0").Err(); err != nil {
			t.Fatal(err)
		}
		err := c.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{"s", ">"}, Block: 3500 * time.Millisecond}).Err()
		if !errors.Is(err, redis.Nil) {
			t.Errorf("%v, want nothing read", err)
		}
		ping(t, c)
	})
}

// A context's deadline bounds a read from a server that is frozen.
func TestConn_DeadlineOnAFrozenServer(t *testing.T) {
	t.Parallel()
	s := testkit.OwnRedis(t)
	var breaks atomic.Int32
	c := closing(t, s.Server().Conn(func() { breaks.Add(1) }))
	ping(t, c)
	s.Freeze(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := c.XRead(ctx, &redis.XReadArgs{Streams: []string{"s", "0"}, Block: time.Minute}).Err()
	if !redisconn.IsTrouble(err) || time.Since(start) > 2*time.Second {
		t.Errorf("%v after %v, want trouble soon", err, time.Since(start))
	}
	s.Thaw(t)
	ping(t, c)
	if got := breaks.Load(); got != 1 {
		t.Errorf("%d breaks, want 1: a reply may be under way on the old connection", got)
	}
}

func TestConn_TLS(t *testing.T) {
	t.Parallel()
	cert, err := tls.X509KeyPair(selfSigned(t))
	if err != nil {
		t.Fatal(err)
	}
	m := miniredis.NewMiniRedis()
	if err := m.StartTLS(&tls.Config{Certificates: []tls.Certificate{cert}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	if err := parse(t, "rediss://"+m.Addr()+"?skip_verify=true").Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := parse(t, "rediss://"+m.Addr()).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%v, want one about the certificate", err)
	}
	var breaks atomic.Int32
	c := closing(t, parse(t, "rediss://"+m.Addr()+"?skip_verify=true").Conn(func() { breaks.Add(1) }))
	for range 3 {
		ping(t, c) // a connection that goes on, and is not dropped for the protocol's own records
	}
	if got := breaks.Load(); got != 0 {
		t.Errorf("%d breaks of a whole connection", got)
	}
}

func TestConn_DialRespectsContext(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never shakes hands
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c := closing(t, parse(t, "rediss://"+l.Addr().String()).Conn(nil))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := c.Ping(ctx).Err(); !redisconn.IsTrouble(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the deadline", err)
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("took %v", d)
	}
}
