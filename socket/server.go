package socket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
	"github.com/lastmile-gateway/lastmile/socket/internal/session"
)

// Server is one socket server: the WebSockets of some users, and the inbox through which their events
// come. Its methods may be called at the same time.
type Server struct {
	// fixed after construction
	cfg      Config
	log      *slog.Logger
	where    *redisconn.Server
	rdb      redis.UniversalClient // the shared pool
	reg      *registry.Registry
	leases   *heartbeat.Leases
	streams  *inbox.Streams
	hand     *inbox.HandOn
	store    events
	verifier *verifier
	metrics  *metrics
	hub      *hub
	runner   *runner // for what asks Redis
	slow     *runner // for what asks the outbox: a MongoDB that hangs must not hold up the other
	jobs     sync.WaitGroup
	sessions session.Config
	handler  http.Handler
	started  time.Time
	scripts  context.Context // of all scripts; ends when Run has given up waiting for them
	stop     context.CancelFunc

	current  atomic.Pointer[life] // nil before the first registration
	state    atomic.Int32
	conns    conns
	lastDial atomic.Int64
	ran      atomic.Bool
}

// events is what the server needs of the outbox.
type events interface {
	Fetch(ctx context.Context, ids ...protocol.EventID) (map[protocol.EventID]*protocol.Envelope, error)
	Publish(ctx context.Context, events ...*protocol.Event) error
	Remember(*protocol.Envelope)
}

// states of a server
const (
	starting int32 = iota
	running
	fencing
	draining
	stopped
)

var stateNames = [...]string{"starting", "running", "fencing", "draining", "stopped"}

// New returns a server that does nothing yet: see Run and Handler.
func New(cfg Config, redis *redisconn.Server, store *outbox.Store) (*Server, error) {
	return newServer(cfg, redis, store)
}

func newServer(cfg Config, where *redisconn.Server, store events) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure socket server: %w", err)
	}
	cfg = cfg.withDefaults()
	s := &Server{
		cfg: cfg, log: cfg.Logger, where: where, store: store, started: time.Now(),
		verifier: newVerifier(cfg.TokenSecret), metrics: newMetrics(cfg.Metrics), hub: newHub(),
	}
	for i, key := range cfg.APIKeys {
		if len(key) < shortAPIKey {
			s.log.Warn("an API key is short enough to be guessed: make one with `openssl rand -hex 16`", "key", i, "bytes", len(key))
		}
	}
	s.runner, s.slow = newRunner(cfg.Workers, &s.jobs), newRunner(slowFactor*cfg.Workers, &s.jobs)
	s.scripts, s.stop = context.WithCancel(context.Background())
	s.rdb = where.Pool(cfg.PoolSize, s.redialled)
	s.reg = registry.New(s.rdb, registry.Config{ReplayWindow: cfg.ReplayWindow, TokenMaxAge: cfg.TokenMaxAge})
	s.leases = heartbeat.New(s.rdb, heartbeat.SocketInstances, s.heartbeatConfig())
	s.streams = inbox.New(s.rdb, inbox.Config{Logger: cfg.Logger, Metrics: cfg.Metrics})
	s.hand = inbox.NewHandOn(s.rdb, s.reg, s.leases, inbox.HandOnConfig{
		NotifyEnabled: cfg.NotifyEnabled, NotifyAfter: cfg.NotifyAfter, Metrics: cfg.Metrics, Logger: cfg.Logger,
	})
	s.sessions = session.Config{
		ConnectTimeout: cfg.ConnectTimeout, AckTimeout: cfg.AckTimeout, ReloadTimeout: cfg.ReloadTimeout,
		RefreshInterval: cfg.RefreshInterval, AckedInterval: ackedInterval,
		QueueEvents: cfg.QueueEvents, QueueBytes: cfg.QueueBytes,
		Welcome:         protocol.Welcome{PingInterval: cfg.PingInterval, MaxFrame: protocol.MaxClientFrame},
		ReconnectWithin: s.reconnectWithin, Count: s.metrics.count, Random: rand.Float64,
	}
	s.handler = s.routes()
	return s, nil
}

// slowFactor is how many more jobs wait for the outbox than for Redis: they hold no connection of its
// pool, and the look-ups among them are gathered into few queries.
const slowFactor = 4

// ackedInterval is the time between two writes of how far a user has acked.
const ackedInterval = 5 * time.Second

func (s *Server) heartbeatConfig() heartbeat.Config {
	return heartbeat.Config{Lease: s.cfg.Lease, Every: s.cfg.BeatInterval, Logger: s.cfg.Logger}
}

// Handler serves the public listener: GET /v1/ws and POST /v1/events. It may be served before Run:
// until the server is registered, and after it has stopped, WebSockets are closed with 1013 and 1012.
func (s *Server) Handler() http.Handler { return s.handler }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/ws", s.serveWS)
	mux.HandleFunc("POST /v1/events", s.serveEvents)
	mux.Handle("/v1/ws", only(http.MethodGet))
	mux.Handle("/v1/events", only(http.MethodPost))
	mux.HandleFunc("/", notFound)
	return mux
}

// Instance is the id of this server's current life; "" before the first registration.
func (s *Server) Instance() protocol.InstanceID {
	if l := s.current.Load(); l != nil {
		return l.id
	}
	return ""
}

// reconnectWithin spreads the reconnects of all sessions here: the more there are, the wider.
func (s *Server) reconnectWithin() time.Duration {
	const each, least, most = 8 * time.Millisecond, 500 * time.Millisecond, 10 * time.Second
	return min(max(time.Duration(s.conns.count())*each, least), most)
}

// redialled is called when a lost connection to Redis was dialled anew: Redis may have gone back, or
// lost our registrations. Several within a second count once.
func (s *Server) redialled() {
	now := time.Now().UnixMilli()
	last := s.lastDial.Load()
	if now-last < time.Second.Milliseconds() || !s.lastDial.CompareAndSwap(last, now) {
		return
	}
	s.refreshAll()
}

func (s *Server) refreshAll() {
	for _, c := range s.hub.all() {
		c.do(func(m *session.Machine, now time.Time) { m.Refresh(now) })
	}
}

// Why the server is not ready.
var (
	errStarting = errors.New("not registered yet")
	errFencing  = errors.New("lost its lease and registers anew")
	errDraining = errors.New("draining")
	errStopped  = errors.New("stopped")
)

// Ready returns nil if the server can take sessions and deliver to them, else why not.
func (s *Server) Ready() error {
	switch s.state.Load() {
	case starting:
		return errStarting
	case fencing:
		return errFencing
	case draining:
		return errDraining
	case stopped:
		return errStopped
	}
	return s.current.Load().ready(time.Now())
}
