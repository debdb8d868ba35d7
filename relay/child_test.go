package relay_test

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"os/exec"

	"github.com/lastmile-gateway/lastmile/internal/redisconn"
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

// child is a relay in a process of its own.
type child struct {
	t   testing.TB
	cmd *exec.Cmd
	log *logBuffer
}

func (w *world) child(name string) *child {
	w.t.Helper()
	c := &child{t: w.t, cmd: exec.Command(os.Args[0]), log: &logBuffer{}}
	c.cmd.Env = append(os.Environ(), childEnv+"="+name, "CHILD_REDIS="+w.redis.url, "CHILD_MONGO="+w.mongo)
	c.cmd.Stderr = c.log
	if err := c.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		c.kill()
		if w.t.Failed() {
			w.t.Logf("log of child %s:\n%s", name, c.log)
		}
	})
	return c
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

func (c *child) signal(s os.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}
