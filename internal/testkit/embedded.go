package testkit

import (
	"context"
	"testing"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
)

// EmbeddedRedis is an embedded Redis of the test's own.
func EmbeddedRedis(t testing.TB) *Redis {
	t.Helper()
	s, err := embedded.NewRedis(embedded.RedisConfig{})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, "embedded redis", s.Run)
	took("redis", "embedded")
	return &Redis{URL: s.URL()}
}

// EmbeddedMongo is an embedded MongoDB of the test's own.
func EmbeddedMongo(t testing.TB) *Mongo {
	t.Helper()
	s, err := embedded.NewMongo(embedded.MongoConfig{})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, "embedded mongo", s.Run)
	took("mongo", "embedded")
	return &Mongo{URL: withDatabase(t, s.URL())}
}

// serve runs what has a Run until the test ends.
func serve(t testing.TB, what string, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run %s: %v", what, err)
		}
	})
}
