package inbox

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

// HandOnConfig says when a pair is moved and when it is given up to
// notifications. The zero value notifies nobody.
type HandOnConfig struct {
	// NotifyEnabled: is there a notifier? If not, pairs that nobody can take
	// are counted and settled.
	NotifyEnabled bool
	// MaxAttempts is how often a pair is moved at most; 0: 3.
	MaxAttempts int
	// MaxAge is how long after its first routing a pair is still moved; 0: 60 s.
	MaxAge time.Duration
	// NotifyAfter is how long after its first routing a pair waits for the
	// sessions that there are; 0: 4 min. Less than the time for which a relay
	// routes again after a total loss of Redis (5 min): nothing may wait in an
	// inbox longer. It bounds MaxAge too.
	NotifyAfter time.Duration
	// Metrics gets the counter of pairs; nil: none.
	Metrics prometheus.Registerer
	// Logger gets what an operator should know; nil: none.
	Logger *slog.Logger
}

func (c HandOnConfig) withDefaults() HandOnConfig {
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 3
	}
	if c.MaxAge == 0 {
		c.MaxAge = time.Minute
	}
	if c.NotifyAfter == 0 {
		c.NotifyAfter = 4 * time.Minute
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// HandOn decides where pairs go that can't be delivered where they are, and
// brings them there. A socket server asks it for pairs that no session of its
// own can acknowledge any more, a reaper for all that a dead instance holds. Its
// methods may be called at the same time.
type HandOn struct {
	// fixed after construction
	rdb    redis.UniversalClient
	reg    *registry.Registry
	leases *heartbeat.Leases
	cfg    HandOnConfig
	pairs  *prometheus.CounterVec
}

// NewHandOn returns a HandOn that appends over rdb; leases are those of the
// socket servers. It does no I/O.
func NewHandOn(rdb redis.UniversalClient, reg *registry.Registry, leases *heartbeat.Leases, cfg HandOnConfig) *HandOn {
	return &HandOn{
		rdb: rdb, reg: reg, leases: leases, cfg: cfg.withDefaults(),
		pairs: register(cfg.Metrics, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lastmile_handed_on_pairs_total",
			Help: "Pairs (event and recipient) that could not be delivered where they were, by what became of them.",
		}, []string{"result"})),
	}
}

// Waiting is a pair to be handed on.
type Waiting struct {
	Event   *protocol.Envelope
	Pair    protocol.Pair
	Attempt int       // of the entry it came with
	Routed  time.Time // its first routing; zero: now
}

// Result counts pairs by what became of them.
type Result struct {
	Moved    int // into one other inbox or several
	Notified int // into the notification stream
	Dropped  int // settled by rule: ephemeral, expired, not to be notified
}

// Due says whether a pair has waited so long that it goes to notifications
// whatever sessions there are.
func (h *HandOn) Due(routed, now time.Time) bool { return now.Sub(routed) > h.cfg.NotifyAfter }

// Do hands pairs on from an instance, in the order given:
//
//   - the user's fields of this instance without a session go first. live
//     answers the sessions that really are here, counted from before their field
//     was written (nil: none);
//   - a pair goes to every other instance where the user has a field and whose
//     lease runs. One that turns out to have no inbox is as if the field were
//     not there, and its fields go;
//   - if there is none, or the pair was moved MaxAttempts times, or was first
//     routed longer than MaxAge ago, or has no place in a log: to notifications;
//   - ephemeral and expired pairs, and those not to be notified, are dropped and
//     counted instead.
//
// After nil every pair is in another inbox, in the notification stream, or
// dropped by these rules, and the caller may settle its entries. After an error
// none of them may be settled: do all of it again, which at worst doubles.
func (h *HandOn) Do(ctx context.Context, from protocol.InstanceID, reason Reason, live func(protocol.UserID) []protocol.SessionID, ws []Waiting) (Result, error) {
	if live == nil {
		live = func(protocol.UserID) []protocol.SessionID { return nil }
	}
	m := move{HandOn: h, from: from, reason: reason, live: live, now: time.Now(), counts: map[string]int{}}
	if err := m.run(ctx, ws); err != nil {
		return Result{}, fmt.Errorf("hand on %d pairs from %s: %w", len(ws), from, err)
	}
	return m.result(), nil
}

// What becomes of a pair, as counted.
const (
	wasMoved       = "moved"
	wasNotified    = "notified"
	wasEphemeral   = "dropped_ephemeral"
	wasExpired     = "dropped_expired"
	wasNotNotified = "dropped_not_to_notify"
	wasDisabled    = "dropped_notify_disabled"
)

// move is one Do under way.
type move struct {
	*HandOn
	from   protocol.InstanceID
	reason Reason
	live   func(protocol.UserID) []protocol.SessionID
	now    time.Time

	ws     []Waiting      // what is neither ephemeral nor expired
	placed []bool         // of each: is it in another inbox?
	counts map[string]int // pairs by what became of them
}

func (m *move) run(ctx context.Context, ws []Waiting) error {
	m.take(ws)
	if len(m.ws) == 0 {
		return nil
	}
	fields, err := m.locate(ctx)
	if err != nil {
		return err
	}
	if err := m.dropStale(ctx, fields); err != nil {
		return err
	}
	places, err := m.places(ctx, fields)
	if err != nil {
		return err
	}
	goneFrom, err := m.append(ctx, m.pack(places))
	if err != nil {
		return err
	}
	if err := m.leaveGone(ctx, fields, goneFrom); err != nil {
		return err
	}
	return m.notify(ctx)
}

// take keeps what may still be delivered and counts the rest.
func (m *move) take(ws []Waiting) {
	for _, w := range ws {
		switch {
		case w.Event.Ephemeral:
			m.counts[wasEphemeral]++
		case w.Event.Expired(m.now):
			m.counts[wasExpired]++
		default:
			if w.Routed.IsZero() {
				w.Routed = m.now
			}
			m.ws = append(m.ws, w)
		}
	}
	m.placed = make([]bool, len(m.ws))
}

// movable says whether a pair may go to another inbox at all. One without a
// place in a log could be acknowledged by no session.
func (m *move) movable(w Waiting) bool {
	return w.Pair.Seq != 0 && w.Attempt < m.cfg.MaxAttempts &&
		m.now.Sub(w.Routed) <= min(m.cfg.MaxAge, m.cfg.NotifyAfter)
}

// result is called when all is done, so that the metric counts no try twice.
func (m *move) result() Result {
	for what, n := range m.counts {
		m.pairs.WithLabelValues(what).Add(float64(n))
	}
	return Result{
		Moved: m.counts[wasMoved], Notified: m.counts[wasNotified],
		Dropped: m.counts[wasEphemeral] + m.counts[wasExpired] + m.counts[wasNotNotified] + m.counts[wasDisabled],
	}
}
