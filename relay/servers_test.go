package relay_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/outbox"
)

// redisServer is a Redis of one test, embedded or real.
type redisServer struct {
	url  string
	cmd  *exec.Cmd // nil: embedded
	args []string
}

// eachRedis runs a test on the embedded Redis and on a real one where there is one.
func eachRedis(t *testing.T, run func(t *testing.T, s *redisServer)) {
	t.Run("embedded", func(t *testing.T) { t.Parallel(); run(t, embeddedRedis(t)) })
	t.Run("real", func(t *testing.T) { t.Parallel(); run(t, realRedis(t)) })
}

func embeddedRedis(t *testing.T) *redisServer {
	t.Helper()
	s, err := embedded.NewRedis(embedded.RedisConfig{})
	if err != nil {
		t.Fatal(err)
	}
	background(t, s.Run)
	return &redisServer{url: s.URL()}
}

func realRedis(t *testing.T) *redisServer {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("no redis-server")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	dir := t.TempDir()
	s := &redisServer{url: fmt.Sprintf("redis://127.0.0.1:%d", port), args: []string{
		path, "--bind", "127.0.0.1", "--port", fmt.Sprint(port), "--dir", dir, "--save", "", "--appendonly", "no",
		"--dbfilename", "dump.rdb", "--logfile", filepath.Join(dir, "log"),
	}}
	s.start(t)
	t.Cleanup(func() { s.kill() })
	return s
}

func (s *redisServer) start(t *testing.T) {
	t.Helper()
	s.cmd = exec.Command(s.args[0], s.args[1:]...)
	s.cmd.Env = os.Environ()
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	rdb := s.client(t)
	eventually(t, 10*time.Second, "redis-server answers", func() bool { return rdb.Ping(context.Background()).Err() == nil })
}

func (s *redisServer) kill() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

func (s *redisServer) client(t testing.TB) redis.UniversalClient {
	t.Helper()
	o, err := redis.ParseURL(s.url)
	if err != nil {
		t.Fatal(err)
	}
	o.PoolSize = 4
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func (s *redisServer) server(t testing.TB) *redisconn.Server {
	t.Helper()
	server, err := redisconn.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// newMongo starts an embedded MongoDB.
func newMongo(t testing.TB, cfg embedded.MongoConfig) string {
	t.Helper()
	m, err := embedded.NewMongo(cfg)
	if err != nil {
		t.Fatal(err)
	}
	background(t, m.Run)
	return m.URL()
}

func openStore(t testing.TB, url string) *outbox.Store {
	t.Helper()
	ctx := context.Background()
	store, err := outbox.Open(ctx, url, outbox.Config{AwaitTime: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close(context.Background()) })
	if err := store.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	return store
}

// background runs something for the time of the test.
func background(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stopped := false
	stop = func() {
		cancel()
		if stopped {
			return
		}
		stopped = true
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// eventually polls, since it waits for other processes.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok() {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("not within %v: %s", within, what)
		case <-tick.C:
		}
	}
}
