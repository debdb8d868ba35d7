package redisconn_test

import (
	"context"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lastmile-gateway/lastmile/internal/redisconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse(t testing.TB, url string) *redisconn.Server {
	t.Helper()
	s, err := redisconn.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mini is a server whose connections can be counted, with a Server for it.
func mini(t testing.TB) (*miniredis.Miniredis, *redisconn.Server) {
	t.Helper()
	m := miniredis.RunT(t)
	return m, parse(t, "redis://"+m.Addr())
}

func closing(t testing.TB, c redis.UniversalClient) redis.UniversalClient {
	t.Helper()
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func ping(t testing.TB, c redis.UniversalClient) {
	t.Helper()
	if err := c.Ping(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
}
