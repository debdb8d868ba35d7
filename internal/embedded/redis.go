package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// RedisConfig says how a [Redis] is set up. The zero value is usable.
type RedisConfig struct {
	// Addr is the address to listen on. Default 127.0.0.1:0, any free port.
	Addr string
	// Logger is told of faults. Default: slog.Default().
	Logger *slog.Logger
}

// Redis is the embedded Redis server.
type Redis struct {
	server *miniredis.Miniredis
	addr   string
}

// NewRedis opens the listener, so that Addr is known at once. Unlike a [Mongo] it
// answers from then on, since miniredis serves where it listens; Run keeps it
// until its context ends, and must be called to close it.
func NewRedis(cfg RedisConfig) (*Redis, error) {
	setDefault(&cfg.Addr, "127.0.0.1:0")
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr(cfg.Addr); err != nil {
		return nil, fmt.Errorf("open embedded redis: %w", err)
	}
	r := &Redis{server: m}
	m.Server().SetPreHook(r.rightScriptErrors)
	host, port, err := net.SplitHostPort(m.Addr())
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("open embedded redis: %w", err)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	r.addr = net.JoinHostPort(host, port)
	return r, nil
}

// Addr is the address it listens on, as host:port.
func (r *Redis) Addr() string { return r.addr }

// URL is "redis://host:port".
func (r *Redis) URL() string { return "redis://" + r.addr }

// Run lets the TTLs age until ctx ends, then closes every connection and returns
// nil when all of its goroutines have ended.
func (r *Redis) Run(ctx context.Context) error {
	defer r.server.Close()
	last := time.Now()
	for wait := ageEvery; pause(ctx, wait); {
		now := time.Now()
		r.server.FastForward(now.Sub(last))
		last = now
		wait = min(max(ageEvery, ageShare*time.Since(now)), ageAtMost)
	}
	return nil
}

// TTLs age in steps: a key may go early by one step. miniredis can age them at
// each command instead (ClockTTL), but looks at every key to do so, which with
// 2,000 keys makes each command take 0.7 ms. The step grows with the number of
// keys, so that ageing takes at most a twentieth of the time.
const (
	ageEvery  = 25 * time.Millisecond
	ageShare  = 20
	ageAtMost = time.Second
)
