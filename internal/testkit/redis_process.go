package testkit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// redisProcess is a redis-server that one test owns.
type redisProcess struct {
	addr    string
	args    []string
	process *Process
}

var errPortTaken = errors.New("the port is taken")

// startRedis starts a redis-server for t alone. A port that somebody took between its reservation and now is tried no second time.
func startRedis(t testing.TB, options ...RedisOption) *Redis {
	t.Helper()
	took("redis", version("redis-server"))
	var o redisOptions
	for _, option := range options {
		option(&o)
	}
	for range 5 {
		r := newRedisProcess(t, o)
		err := r.start(t)
		if errors.Is(err, errPortTaken) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return &Redis{URL: "redis://" + r.addr, Real: true, own: r}
	}
	t.Fatal("start redis-server: five ports were taken")
	return nil
}

func newRedisProcess(t testing.TB, o redisOptions) *redisProcess {
	addr := FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr) // FreeAddr made it
	args := []string{"--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--daemonize", "no", "--save", ""}
	if o.args == nil {
		args = append(args, "--appendonly", "no")
	}
	return &redisProcess{addr: addr, args: append(args, o.args...)}
}

func (r *redisProcess) restart(t testing.TB) {
	t.Helper()
	r.process.kill()
	if err := r.start(t); err != nil {
		t.Fatal(err)
	}
}

// start returns when the server answers.
func (r *redisProcess) start(t testing.TB) error {
	t.Helper()
	r.process = Start(t, exec.Command("redis-server", r.args...))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		err := ping(ctx, "redis://"+r.addr)
		switch {
		case err == nil && !r.process.ended():
			return nil
		case r.process.ended() && strings.Contains(r.process.Output(), "in use"):
			return errPortTaken
		case r.process.ended() || ctx.Err() != nil:
			return fmt.Errorf("start redis-server: %w\n%s", err, r.process.Output())
		}
		pause(ctx, 5*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
