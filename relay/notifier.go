package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// sentKnown is how many notices are remembered as taken by the sink, over all lost
// connections: Redis may lose a mark, the sink does not lose what it took.
const sentKnown = 16_384

// Notifier takes pairs from the notification stream to a [Sink], once for each
// event and user.
//
// # A pair's way
//
//	entry read ─▶ grace ─▶ acked, expired, revoked, muted? ──yes──▶ done
//	                        │ no
//	                        ▼        SENT, DEAD
//	              mark: take PENDING ──────────▶ done
//	                ▲    │  │ another entry's PENDING
//	                │    │  └──────▶ waits until that is SENT, or the other entry is gone
//	                │    ▼ own
//	                │   sink ──taken──▶ mark SENT ─▶ done
//	                │    │ failed
//	                └────┴──past the limit──▶ dead letter ─▶ mark DEAD ─▶ done
//
// An entry whose pairs are all done is acknowledged and deleted. One of whose pairs
// only those are left that wait for another entry is let go, which makes room; it is
// claimed again later. Claims are renewed; what others leave unrenewed is claimed.
//
// # Crash points
//
// Killed between any two of these steps; another notifier, or the next start, claims
// the entry once it was not renewed for ClaimIdle:
//
//	after                      lost      doubled                       repaired by
//	-------------------------  --------  ----------------------------  ------------------------------
//	entry read                 nothing   nothing                       claimed
//	PENDING                    nothing   nothing                       the same entry's PENDING is own
//	sink has taken it          nothing   that notice, under its id     sent again: nobody knows
//	SENT                       nothing   nothing                       the mark says so
//	dead letter                nothing   a dead letter                 put aside again
//	DEAD                       nothing   nothing                       the mark says so
//	XACK and XDEL              nothing   nothing                       one MULTI
//	Redis older (marks gone)   nothing   notices, under their ids      all is forgotten and taken again
//
// # Failures
//
//   - Redis breaks: everything that is held is forgotten, but for what the sink took.
//   - The group is missing: made again, at the first entry.
//   - The sink fails: each pair backs off by itself; the sink as a whole is asked by
//     one try at a time once it failed [gateFailures] times in a row.
//   - The sink is disabled (410): an alarm, and no more tries; pairs past the limit go
//     to the dead letters.
//   - An entry that can't be decoded: the dead letters. One without a body: counted
//     and acknowledged.
//   - This process is frozen: what it holds is claimed by others. When it wakes up it
//     sends nothing on renewals that old.
type Notifier struct {
	// fixed after construction
	cfg     NotifierConfig
	log     *slog.Logger
	redis   *redisconn.Server
	sink    Sink
	gate    *gate
	metrics *notifierMetrics
	sent    *lru.Cache[string, struct{}] // ids of notices that the sink took
	dial    func(onDial func()) redis.UniversalClient

	stats notifierStats

	mu       sync.Mutex
	ids      []protocol.InstanceID // of this process; the last one is today's
	trouble  error                 // why no life is on; nil: one is
	answered time.Time             // when Redis last answered
}

// notifierStats are what goroutines of a life tell of it.
type notifierStats struct {
	held, waiting, length atomic.Int64
	oldest                atomic.Int64 // ms; 0: none
	read                  atomic.Int64 // ms of the last read
	unread, tooMany       alarm
}

// NewNotifier makes one. It starts nothing: see [Notifier.Run].
func NewNotifier(cfg NotifierConfig, server *redisconn.Server, sink Sink) (*Notifier, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure notifier: %w", err)
	}
	cfg = cfg.withDefaults()
	sent, err := lru.New[string, struct{}](sentKnown)
	if err != nil {
		return nil, fmt.Errorf("configure notifier: %w", err)
	}
	n := &Notifier{
		cfg: cfg, log: cfg.Logger, redis: server, sink: sink, sent: sent,
		dial:    server.Conn,
		trouble: errors.New("not started"),
	}
	n.metrics = newNotifierMetrics(cfg.Metrics, n)
	n.gate = newGate(cfg, n.metrics.tries)
	return n, nil
}

// Run notifies until ctx ends. Then it takes no more, lets the calls of the sink that
// are under way end, writes down what came of them, and gives back what it holds. It
// returns an error only where another notifier of the same name took over:
// [heartbeat.ErrSuperseded]. Trouble of Redis and of the sink is waited out.
func (n *Notifier) Run(ctx context.Context) error {
	defer n.closeSink()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work errgroup.Group
	joined := make(chan struct{})
	work.Go(func() error {
		defer cancel()
		return n.belong(ctx, sync.OnceFunc(func() { close(joined) }))
	})
	work.Go(func() error {
		select {
		case <-joined:
			n.live(ctx)
		case <-ctx.Done():
		}
		return nil
	})
	return work.Wait()
}

func (n *Notifier) closeSink() {
	if c, ok := n.sink.(io.Closer); ok {
		_ = c.Close()
	}
}

// live leads one life after the other, each from a connection to its loss.
func (n *Notifier) live(ctx context.Context) {
	var back backoff
	var bad trouble
	for back.wait(ctx) {
		began := time.Now()
		err := n.life(ctx)
		if ctx.Err() != nil {
			break
		}
		n.metrics.breaks.Inc()
		n.set(err)
		if time.Since(began) > backoffMost {
			back.reset()
			bad = trouble{}
		}
		bad.begin(n.log, "redis trouble, the notifier begins anew with backoff", err)
	}
	n.set(errors.New("stopped"))
}

// life opens the connections of a life and closes them after it. Either dials once:
// a second dial means that Redis may have lost what was written, and ends the life.
func (n *Notifier) life(ctx context.Context) error {
	base, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	reads, writes := n.dial(nil), n.dial(nil)
	defer reads.Close()
	defer writes.Close()
	reads.AddHook(&guard{fail: end})
	writes.AddHook(&guard{fail: end})
	return newDuty(n, n.consumer(), reads, writes, end).run(base, ctx)
}

// consumer is the name under which this process reads: the same for its whole life,
// so that it finds again what it held.
func (n *Notifier) consumer() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return string(n.ids[0])
}

// belong keeps the notifier's lease, by which others see it, and by which a second
// start of the same name supersedes the first.
func (n *Notifier) belong(ctx context.Context, joined func()) error {
	conn := n.redis.Conn(nil)
	defer conn.Close()
	name := NotifierPrefix + n.cfg.Name
	leases := heartbeat.New(conn, heartbeat.RelayInstances, heartbeat.Config{Lease: n.cfg.Lease, Every: n.cfg.Beat, Logger: n.log})
	id, value, err := n.join(ctx, leases, name)
	for err == nil {
		n.mu.Lock()
		n.ids = append(n.ids, id)
		own := append([]protocol.InstanceID(nil), n.ids...)
		n.mu.Unlock()
		joined()
		if err = leases.Keep(id, value, nil, nil).Run(ctx); err == nil {
			return n.quit(leases, id)
		}
		id, value, err = leases.Rejoin(ctx, name, own...)
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("keep notifier's lease: %w", err)
}

// join registers as soon as Redis can be reached.
func (n *Notifier) join(ctx context.Context, leases *heartbeat.Leases, name string) (protocol.InstanceID, int64, error) {
	var back backoff
	var bad trouble
	for back.wait(ctx) {
		id, value, err := leases.Register(ctx, name)
		if err == nil {
			return id, value, nil
		}
		n.set(err)
		bad.begin(n.log, "register notifier", err)
	}
	return "", 0, context.Cause(ctx)
}

// quit gives the lease up. What can't be removed ends by itself.
func (n *Notifier) quit(leases *heartbeat.Leases, id protocol.InstanceID) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := leases.Remove(ctx, id); err != nil {
		n.log.Debug("notifier's lease was not given up, it ends by itself", keyError, err)
	}
	return nil
}

func (n *Notifier) set(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.trouble = err
}

// redisAnswered takes note that Redis is well.
func (n *Notifier) redisAnswered() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.trouble, n.answered = nil, time.Now()
}
