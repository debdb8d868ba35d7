package relay_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/relay"
)

// childEnv makes the test binary run a relay instead of tests: name, Redis, MongoDB.
const childEnv = "LASTMILE_RELAY_TEST_CHILD"

func runChild() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	fail := func(err error) {
		if err != nil {
			log.Error("child", "error", err)
			os.Exit(1)
		}
	}
	server, err := redisconn.Parse(os.Getenv("CHILD_REDIS"))
	fail(err)
	store, err := outbox.Open(ctx, os.Getenv("CHILD_MONGO"), outbox.Config{AwaitTime: 200 * time.Millisecond})
	fail(err)
	cfg := quick(os.Getenv(childEnv))
	cfg.Logger = log
	r, err := relay.New(cfg, server, store)
	fail(err)
	fail(r.Run(ctx))
}

// child starts a relay in a process of its own.
func (w *world) child(name string) *testkit.Process {
	w.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+name, "CHILD_REDIS="+w.redis.URL, "CHILD_MONGO="+w.mongo.URL)
	p := testkit.Start(w.t, cmd)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("log of child %s:\n%s", name, p.Output())
		}
	})
	return p
}
