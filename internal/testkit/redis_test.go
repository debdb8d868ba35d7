package testkit_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

func TestEachRedis_isCleanAndUsable(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		c := s.Client(t)
		if n, err := c.DBSize(t.Context()).Result(); err != nil || n != 0 {
			t.Errorf("%d keys, %v", n, err)
		}
		if err := s.Server().Check(t.Context()); err != nil {
			t.Errorf("check %s: %v", s.URL, err)
		}
	})
}

func TestFirstRedis_isNotSharedBetweenTests(t *testing.T) {
	t.Parallel()
	a, b := testkit.FirstRedis(t), testkit.FirstRedis(t)
	if err := a.Client(t).Set(t.Context(), "key", "a", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Client(t).Exists(t.Context(), "key").Result(); err != nil || n != 0 {
		t.Errorf("one sees the other's key: %d, %v", n, err)
	}
}

func TestOwnRedis_restart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options []testkit.RedisOption
		want    int64
	}{
		"forgets": {nil, 0},
		"keeps":   {[]testkit.RedisOption{testkit.AppendOnly("always")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := testkit.OwnRedis(t, c.options...)
			client := r.Client(t)
			if err := client.Set(t.Context(), "key", 1, 0).Err(); err != nil {
				t.Fatal(err)
			}
			r.Kill(t)
			if err := client.Ping(t.Context()).Err(); err == nil {
				t.Error("a killed server answers")
			}
			r.Restart(t)
			if n, err := client.Exists(t.Context(), "key").Result(); err != nil || n != c.want {
				t.Errorf("%d keys after the restart, %v, want %d", n, err, c.want)
			}
		})
	}
}

func TestOwnRedis_freeze(t *testing.T) {
	t.Parallel()
	r := testkit.OwnRedis(t)
	client := r.Client(t)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.Freeze(t)
	answered := make(chan error, 1)
	go func() { answered <- client.Ping(context.Background()).Err() }()
	select {
	case err := <-answered:
		t.Errorf("a frozen server answers: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	r.Thaw(t)
	if err := <-answered; err != nil {
		t.Errorf("after the thaw: %v", err)
	}
}

func TestSharedRedis_givesEachTestAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	server := testkit.OwnRedis(t)
	zero := server.Client(t)
	if err := zero.Set(t.Context(), "mine", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	for range 2 {
		r := testkit.SharedRedis(t, server.URL)
		u, err := url.Parse(r.URL)
		if err != nil || paths[u.Path] || u.Path == "/0" {
			t.Fatalf("database %s again, or %v", r.URL, err)
		}
		paths[u.Path] = true
		if err := r.Client(t).Set(t.Context(), "key", 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := zero.DBSize(t.Context()).Result(); err != nil || n != 1 {
		t.Errorf("database 0 has %d keys, %v: it was not left alone", n, err)
	}
	var used recorder
	var path string
	used.run(func(t testing.TB) {
		r := testkit.SharedRedis(contextual{t, context.Background()}, server.URL)
		u, _ := url.Parse(r.URL)
		path = u.Path
		_ = r.Client(t).Set(context.Background(), "left", 1, 0)
	})
	if paths[path] || used.failure != "" {
		t.Errorf("database %s given twice, or %s", path, used.failure)
	}
	again := testkit.SharedRedis(t, server.URL)
	if n, err := again.Client(t).DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Errorf("%s is not empty: %d, %v", again.URL, n, err)
	}
}

// contextual is a test with a context of its own.
type contextual struct {
	testing.TB
	ctx context.Context
}

func (c contextual) Context() context.Context { return c.ctx }
