package registry_test

import (
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/redisconn"
)

// eachRedis runs a test on miniredis, and on a redis-server if there is one.
func eachRedis(t *testing.T, run func(t *testing.T, newRedis func(t *testing.T) redis.UniversalClient)) {
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		addr := miniredis.RunT(t).Addr()
		run(t, func(t *testing.T) redis.UniversalClient { return client(t, addr) })
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		addr := realRedis(t)
		run(t, func(t *testing.T) redis.UniversalClient { return client(t, addr) })
	})
}

func client(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	s, err := redisconn.Parse("redis://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	rdb := s.Pool(4, nil)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func realRedis(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("no redis-server")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	_ = l.Close()
	cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for deadline := time.Now().Add(10 * time.Second); ; {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
			return addr
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-time.After(10 * time.Millisecond)
	}
}
