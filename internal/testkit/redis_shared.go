package testkit

import (
	"context"
	"errors"
	"hash/fnv"
	"net/url"
	"strconv"
	"testing"
	"time"
)

// sharedRedis takes a database number of a server that others use too, empties it, and keeps it under a
// lock until the test ends. Database 0 is left alone: it may hold what somebody needs.
func sharedRedis(t testing.TB, rawURL string) *Redis {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatalf("parse %s: %v", redisURLName, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	u.Path = "/" + strconv.Itoa(takeDatabase(ctx, t, u.Host))
	r := &Redis{URL: u.String(), Real: true}
	c := r.Client(t)
	if err := c.FlushDB(ctx).Err(); err != nil {
		t.Fatalf("empty database %s of the shared redis: %v", u.Path, err)
	}
	return r
}

func takeDatabase(ctx context.Context, t testing.TB, host string) int {
	t.Helper()
	h := fnv.New64a()
	_, _ = h.Write([]byte(host)) // a hash never fails
	prefix := "redis-" + strconv.FormatUint(h.Sum64(), 36) + "-"
	for ctx.Err() == nil {
		for db := 1; db < 16; db++ {
			release, err := lock(prefix + strconv.Itoa(db))
			if err == nil {
				t.Cleanup(release)
				return db
			}
			if !errors.Is(err, errLocked) {
				t.Fatal(err)
			}
		}
		pause(ctx, 50*time.Millisecond)
	}
	t.Fatal("take a database of the shared redis: all fifteen were in use for five minutes")
	return 0
}
