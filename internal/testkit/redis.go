package testkit

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/redisconn"
)

// Redis is a Redis that one test has to itself: a server of its own, or a database number in a shared one.
type Redis struct {
	URL  string // redis://…, with the database number where it is not 0
	Real bool   // no embedded one

	own *redisProcess // nil: not a process of this test
}

// RedisOption changes how a redis-server of a test's own is started.
type RedisOption func(*redisOptions)

type redisOptions struct{ args []string }

// AppendOnly keeps what is written in a file, so that it is there after a Restart. fsync is Redis'
// appendfsync: "always", "everysec" or "no".
func AppendOnly(fsync string) RedisOption {
	return func(o *redisOptions) { o.args = append(o.args, "--appendonly", "yes", "--appendfsync", fsync) }
}

// EachRedis runs a test against the embedded Redis and against the real one that was found.
func EachRedis(t *testing.T, run func(t *testing.T, s *Redis)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) { t.Parallel(); run(t, EmbeddedRedis(t)) })
	t.Run("real", func(t *testing.T) { t.Parallel(); run(t, RealRedis(t)) })
}

// FirstRedis is the real Redis that was found, else the embedded one. The options count where it is a redis-server of this test's own.
func FirstRedis(t testing.TB, options ...RedisOption) *Redis {
	t.Helper()
	if findRedis() == fromEmbedded && !required("redis") {
		return EmbeddedRedis(t)
	}
	return RealRedis(t, options...)
}

// RealRedis is the real Redis that was found; the test is skipped (or fails, see Require) where there is none.
func RealRedis(t testing.TB, options ...RedisOption) *Redis {
	t.Helper()
	switch findRedis() {
	case fromURL:
		took("redis", "the one of "+redisURLName)
		return sharedRedis(t, os.Getenv(redisURLName))
	case fromBinary:
		return startRedis(t, options...)
	case fromDocker:
		took("redis", "Docker, "+redisImage)
		return sharedRedis(t, dockerRedis(t))
	}
	missing(t, "redis")
	return nil
}

// OwnRedis is a redis-server process of the test's own, for tests that kill, restart or freeze it. The
// test is skipped (or fails, see Require) where there is no such binary.
func OwnRedis(t testing.TB, options ...RedisOption) *Redis {
	t.Helper()
	if !have("redis-server") {
		missing(t, "redis")
	}
	return startRedis(t, options...)
}

// Client is a client of plain go-redis, closed at the test's end. Its retries are off: they would hide what a test looks for.
func (r *Redis) Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	o, err := redis.ParseURL(r.URL)
	if err != nil {
		t.Fatalf("parse redis url: %v", err)
	}
	o.MaxRetries, o.DialerRetries = -1, 1
	c := redis.NewClient(o)
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Errorf("close redis client: %v", err)
		}
	})
	return c
}

// Server is where it is, for those who make their own connections.
func (r *Redis) Server() *redisconn.Server {
	s, err := redisconn.Parse(r.URL)
	if err != nil {
		panic("testkit: its own redis url is not valid: " + err.Error())
	}
	return s
}

// Kill ends a Redis of the test's own by SIGKILL.
func (r *Redis) Kill(t testing.TB) { t.Helper(); r.mustOwn(t).process.Kill(t) }

// Restart kills it, unless it is dead already, and starts it again at its address, with what it has on disk; without AppendOnly that is nothing.
func (r *Redis) Restart(t testing.TB) { t.Helper(); r.mustOwn(t).restart(t) }

// Freeze stops it: connections stay open, and nothing is answered.
func (r *Redis) Freeze(t testing.TB) { t.Helper(); r.mustOwn(t).process.Freeze(t) }

// Thaw lets it go on.
func (r *Redis) Thaw(t testing.TB) { t.Helper(); r.mustOwn(t).process.Thaw(t) }

func (r *Redis) mustOwn(t testing.TB) *redisProcess {
	t.Helper()
	if r.own == nil {
		missing(t, "redis-server")
	}
	return r.own
}

// ping asks for an answer that is no error, such as LOADING.
func ping(ctx context.Context, url string) error {
	o, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	// First without the client, which logs every refused dial: a server that starts refuses some.
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", o.Addr)
	if err != nil {
		return err
	}
	_ = conn.Close()
	o.MaxRetries, o.DialerRetries = -1, 1
	c := redis.NewClient(o)
	defer c.Close()
	return c.Ping(ctx).Err()
}
