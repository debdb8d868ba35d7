package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// store is the redis-server, whose append-only file the run can shorten or take away.
type store struct {
	// fixed after construction
	t      testing.TB
	server *testkit.Redis
	addr   string
	folder string // of the append-only files

	busy bool // owned by the timeline

	troubles spans // what was written in these times may be gone
	emptied  spans // points in time at which everything was lost

	mu    sync.Mutex
	sizes []size // of the newest append-only file, over the last seconds
}

type size struct {
	at    time.Time
	path  string
	bytes int64
}

const sizesKept = 15 * time.Second

func newStore(t testing.TB) *store {
	s := &store{t: t, server: testkit.OwnRedis(t, testkit.AppendOnly("everysec"))}
	s.addr = strings.TrimPrefix(s.server.URL, "redis://")
	client := s.server.Client(t)
	dir, err := client.ConfigGet(t.Context(), "dir").Result()
	if err != nil {
		t.Fatalf("ask redis for its folder: %v", err)
	}
	s.folder = filepath.Join(dir["dir"], "appendonlydir")
	ctx, cancel := context.WithCancel(t.Context())
	var measuring sync.WaitGroup
	measuring.Go(func() { s.measure(ctx) })
	t.Cleanup(func() { cancel(); measuring.Wait() })
	return s
}

// measure notes how long the append-only file was at which time: what follows can be cut off later.
func (s *store) measure(ctx context.Context) {
	for pause(ctx, 200*time.Millisecond) {
		found, _ := filepath.Glob(filepath.Join(s.folder, "*.incr.aof")) // the pattern is good
		if len(found) == 0 {
			continue
		}
		path := found[len(found)-1]
		info, err := os.Stat(path)
		if err != nil {
			continue // a restart is under way
		}
		s.mu.Lock()
		s.sizes = append(s.sizes, size{at: time.Now(), path: path, bytes: info.Size()})
		for time.Since(s.sizes[0].at) > sizesKept {
			s.sizes = s.sizes[1:]
		}
		s.mu.Unlock()
	}
}

// restart kills it and starts it with all it has written.
func (s *store) restart() {
	trouble := s.troubles.begin("restart")
	s.server.Restart(s.t)
	s.troubles.end(trouble, time.Now().Add(mend))
}

// lose kills it and starts it without what was written in the last while.
func (s *store) lose(deep time.Duration) (lost int64) {
	s.server.Kill(s.t)
	killed := time.Now()
	trouble := s.troubles.since("loss", killed.Add(-deep-time.Second))
	lost = s.cut(killed.Add(-deep))
	s.server.Restart(s.t)
	s.troubles.end(trouble, time.Now().Add(mend))
	return lost
}

// cut shortens the file to what it was at a time. Redis itself drops the command that is cut in two
// (aof-load-truncated, on by default).
func (s *store) cut(at time.Time) (lost int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.sizes) - 1; i >= 0; i-- {
		one := s.sizes[i]
		if one.at.After(at) {
			continue
		}
		info, err := os.Stat(one.path)
		if err != nil || info.Size() < one.bytes {
			break // another file by now
		}
		if err := os.Truncate(one.path, one.bytes); err != nil {
			s.t.Fatalf("shorten the append-only file: %v", err)
		}
		return info.Size() - one.bytes
	}
	return 0
}

// empty kills it and starts it with nothing.
func (s *store) empty() {
	trouble := s.troubles.begin("empty")
	s.server.Kill(s.t)
	s.emptied.end(s.emptied.begin("empty"), time.Now())
	if err := os.RemoveAll(s.folder); err != nil {
		s.t.Fatalf("remove the append-only files: %v", err)
	}
	s.server.Restart(s.t)
	s.troubles.end(trouble, time.Now().Add(mend))
}

// dial is a client that no fault of a proxy reaches; every answer may be an error.
func dial(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
