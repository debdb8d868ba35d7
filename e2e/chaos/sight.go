package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// inboxMost is the longest that an event may wait in an inbox.
const inboxMost = 5 * time.Minute

// sight looks into Redis, past all proxies: how long entries wait, and what is left at the end.
type sight struct {
	// fixed after construction
	client *redis.Client

	mu     sync.Mutex
	oldest time.Duration // the greatest age seen
	stale  map[string]string
}

func newSight(t testing.TB, addr string) *sight {
	s := &sight{client: dial(t, addr), stale: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	looking.Go(func() {
		for pause(ctx, 2*time.Second) {
			s.look(ctx)
		}
	})
	t.Cleanup(func() { cancel(); looking.Wait() })
	return s
}

// inboxes lists the streams of all instances, dead ones too.
func (s *sight) inboxes(ctx context.Context) ([]string, error) {
	var out []string
	scan := s.client.Scan(ctx, 0, "socket:inbox:*", 1000).Iterator()
	for scan.Next(ctx) {
		out = append(out, scan.Val())
	}
	return out, scan.Err()
}

// look measures the oldest entry of each inbox. An error is a fault of the run: Redis is down just now.
func (s *sight) look(ctx context.Context) {
	keys, err := s.inboxes(ctx)
	if err != nil {
		return
	}
	for _, key := range keys {
		entries, err := s.client.XRange(ctx, key, "-", "+").Result()
		if err != nil {
			continue
		}
		for _, entry := range entries {
			s.measure(key, entry)
		}
	}
}

func (s *sight) measure(key string, entry redis.XMessage) {
	stamp, _, _ := strings.Cut(entry.ID, "-")
	if routed, ok := entry.Values["routed"].(string); ok {
		stamp = routed // it was moved; this is when it was routed first
	}
	since, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return
	}
	age := time.Since(time.UnixMilli(since))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = max(s.oldest, age)
	if age > inboxMost {
		s.stale[key+" "+entry.ID] = fmt.Sprintf("%s %s is %s old", key, entry.ID, age.Round(time.Second))
	}
}

// waiting says what is not settled yet; "": nothing.
func (s *sight) waiting(ctx context.Context) string {
	keys, err := s.inboxes(ctx)
	if err != nil {
		return "redis: " + err.Error()
	}
	for _, key := range keys {
		n, err := s.client.XLen(ctx, key).Result()
		if err != nil || n > 0 && !s.probesOnly(ctx, key) {
			return fmt.Sprintf("%d entries in %s", n, key)
		}
	}
	n, err := s.client.XLen(ctx, "socket:notification:all").Result()
	if err != nil || n > 0 {
		return fmt.Sprintf("%d entries in the notification stream", n)
	}
	return ""
}

// probesOnly says whether an inbox holds at most the probe under way that its server sends to itself.
func (s *sight) probesOnly(ctx context.Context, key string) bool {
	entries, err := s.client.XRange(ctx, key, "-", "+").Result()
	if err != nil {
		return false
	}
	for _, entry := range entries {
		stamp, _, _ := strings.Cut(entry.ID, "-")
		since, err := strconv.ParseInt(stamp, 10, 64)
		if err != nil || time.Since(time.UnixMilli(since)) > time.Second {
			return false
		}
	}
	return true
}

// dead says what went to the dead letters. Nothing here is malformed, so nothing may.
func (s *sight) dead(ctx context.Context) []string {
	var out []string
	for _, key := range []string{"socket:dead", "socket:notification:dead"} {
		entries, err := s.client.XRange(ctx, key, "-", "+").Result()
		if err != nil {
			out = append(out, fmt.Sprintf("read %s: %v", key, err))
		}
		for _, entry := range entries {
			out = append(out, fmt.Sprintf("%s %s: %v", key, entry.ID, entry.Values["reason"]))
		}
	}
	return out
}

// old says which entries waited too long, and the greatest age there was.
func (s *sight) old() (stale []string, oldest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.stale {
		stale = append(stale, one)
	}
	return stale, s.oldest
}
