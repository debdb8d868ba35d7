package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/internal/embedded/store"
)

// MongoConfig says how a [Mongo] is set up. The zero value is usable.
type MongoConfig struct {
	// Addr is the address to listen on. Default 127.0.0.1:0, any free port.
	Addr string
	// OplogSize is how many changes are kept for streams to resume from.
	// Default 5000.
	OplogSize int
	// OplogBytes bounds the same by size. Default 256 MiB.
	OplogBytes int
	// OplogMinAge keeps changes that are younger, whatever the bounds above.
	// Default 0: the bounds alone count.
	OplogMinAge time.Duration
	// TransactionLifetime is how long a transaction may be open; then it is
	// aborted, so that one that was left behind holds up nobody. Default 60 s.
	TransactionLifetime time.Duration
	// IdleWrite is the pause after which the oplog gets an entry without effect,
	// so that operationTime and idle resume tokens move on. Default 10 s.
	IdleWrite time.Duration
	// Sweep is the pause between two looks for old transactions, sessions,
	// cursors and documents past a TTL index. Default 1 s.
	Sweep time.Duration
	// WireVersion is the protocol that is announced, by which drivers tell what a
	// server can do. Default 21, MongoDB 7.0's, since newer drivers want more than
	// 9, which is 4.4's.
	WireVersion int32
	// Logger is told of faults. Default: slog.Default().
	Logger *slog.Logger
}

func (c MongoConfig) withDefaults() MongoConfig {
	setDefault(&c.Addr, "127.0.0.1:0")
	setDefault(&c.OplogSize, 5000)
	setDefault(&c.OplogBytes, 256<<20)
	setDefault(&c.TransactionLifetime, time.Minute)
	setDefault(&c.IdleWrite, 10*time.Second)
	setDefault(&c.Sweep, time.Second)
	setDefault(&c.WireVersion, maxWireVersion)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Validate names every setting that makes no sense.
func (c MongoConfig) Validate() error {
	var errs []error
	for name, negative := range map[string]bool{
		"OplogSize": c.OplogSize < 0, "OplogBytes": c.OplogBytes < 0, "OplogMinAge": c.OplogMinAge < 0,
		"TransactionLifetime": c.TransactionLifetime < 0,
		"IdleWrite":           c.IdleWrite < 0, "Sweep": c.Sweep < 0,
	} {
		if negative {
			errs = append(errs, fmt.Errorf("%s: must not be negative", name))
		}
	}
	return errors.Join(errs...)
}

// setName is the name of the one-member replica set.
const setName = "rs0"

// Mongo is the embedded MongoDB server.
type Mongo struct {
	// fixed after construction
	cfg        MongoConfig
	log        *slog.Logger
	listener   net.Listener
	engine     *store.Engine
	cursors    *cursors
	sessions   *sessions
	processID  bson.ObjectID
	electionID bson.ObjectID

	connections connections
}

// NewMongo opens the listener, so that Addr is known at once; it serves only in
// Run. A Mongo that is never run must be given to Run with an ended context to
// close the listener.
func NewMongo(cfg MongoConfig) (*Mongo, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("check embedded mongo: %w", err)
	}
	cfg = cfg.withDefaults()
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("open embedded mongo: %w", err)
	}
	engine := store.NewEngine(store.Config{Oplog: store.OplogLimits{
		Size: cfg.OplogSize, Bytes: cfg.OplogBytes, MinAge: cfg.OplogMinAge,
	}})
	return &Mongo{
		cfg: cfg, log: cfg.Logger, listener: listener, engine: engine,
		cursors: newCursors(), sessions: newSessions(),
		processID: bson.NewObjectID(), electionID: bson.ObjectID{0: 0x7f, 1: 0xff, 2: 0xff, 3: 0xff, 11: 1},
	}, nil
}

// Addr is the address it listens on, as host:port.
func (m *Mongo) Addr() string { return advertised(m.listener.Addr()) }

// advertised puts loopback in the place of "all interfaces": the address goes
// to clients, which dial it.
func advertised(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return a.String()
	}
	return net.JoinHostPort("127.0.0.1", fmt.Sprint(tcp.Port))
}

// URL is a connection string for the official driver, naming the database
// lastmile.
func (m *Mongo) URL() string {
	return fmt.Sprintf("mongodb://%s/lastmile?replicaSet=%s&directConnection=true", m.Addr(), setName)
}

// Run serves until ctx ends, then closes every connection and returns nil when
// all its goroutines have ended. It may be called once.
func (m *Mongo) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer m.connections.closeAll()
	wg.Go(func() {
		<-ctx.Done()
		_ = m.listener.Close()
	})
	wg.Go(func() { m.housekeep(ctx) })
	for {
		c, err := m.listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = c.Close()
			}
			cancel()
			return nil
		case errors.Is(err, net.ErrClosed):
			cancel()
			return fmt.Errorf("run embedded mongo: %w", err)
		case err != nil:
			m.log.Warn("accept connection", "error", err)
			if !pause(ctx, 10*time.Millisecond) {
				cancel()
				return nil
			}
			continue
		}
		wg.Go(func() { m.serve(ctx, c) })
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// housekeep writes the idle entries, and removes what has grown old.
func (m *Mongo) housekeep(ctx context.Context) {
	idle, sweep := time.NewTicker(m.cfg.IdleWrite), time.NewTicker(m.cfg.Sweep)
	defer idle.Stop()
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-idle.C:
			m.engine.Tick()
		case <-sweep.C:
			m.sweep(ctx, time.Now())
		}
	}
}

func (m *Mongo) sweep(ctx context.Context, now time.Time) {
	m.sessions.sweep(now, m.cfg.TransactionLifetime)
	m.cursors.sweep(now)
	err := m.expire(ctx, now)
	if err != nil && ctx.Err() == nil {
		m.log.Error("expire documents", "error", err)
	}
}

func (m *Mongo) expire(ctx context.Context, now time.Time) (err error) {
	defer m.protect("expire", &err)
	return m.engine.Expire(ctx, now)
}
