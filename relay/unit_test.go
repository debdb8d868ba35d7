package relay_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/relay"
)

func TestPosition_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := outbox.Position{Timestamp: outbox.Timestamp{T: rapid.Uint32().Draw(t, "t"), I: rapid.Uint32().Draw(t, "i")},
			Index: rapid.Uint32().Draw(t, "index")}
		if got, ok := relay.ParsePosition(relay.FormatPosition(p)); !ok || got != p {
			t.Fatalf("%v came back as %v, %v", p, got, ok)
		}
	})
	for _, bad := range []string{"", "1", "1.2", "1.2.3.4", "1.2.x", "-1.2.3", "1.2.4294967296"} {
		if _, ok := relay.ParsePosition(bad); ok {
			t.Errorf("%q is a position", bad)
		}
	}
}

func TestConfig_NamesAllProblems(t *testing.T) {
	t.Parallel()
	err := relay.Config{Name: "no spaces", Partitions: -1, BatchSize: -2, Lease: time.Second, Renew: time.Second,
		ProbeWithin: time.Hour, Retention: 48 * time.Hour, Look: -1}.Validate()
	if err == nil {
		t.Fatal("valid")
	}
	for _, word := range []string{"name", "partitions", "batch size", "lease", "probe within", "retention", "look"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("nothing about %s in %q", word, err)
		}
	}
	if err := (relay.Config{Name: "r"}).Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
}

// A second start under one name supersedes the first, which ends and says so.
func TestRun_SecondStartSupersedes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.EmbeddedRedis(t))
	first, err := relay.New(quick("r"), w.redis.Server(), w.store)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- first.Run(ctx) }()
	eventually(t, 10*time.Second, "the first is ready", func() bool { return first.Ready() == nil })
	second := w.relay(quick("r"))
	select {
	case err := <-ended:
		if !errors.Is(err, heartbeat.ErrSuperseded) {
			t.Errorf("the first ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the first goes on")
	}
	second.ready()
}
