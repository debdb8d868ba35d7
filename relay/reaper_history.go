package relay

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// History is the stream of what reapers did, for people to look at: one entry a dead
// instance, with the fields of [Reaped].
const History = "socket:history"

// historyMost is how many entries History keeps.
const historyMost = 1000

// Reaped is what one reaper did about one dead instance. A reaper that died in
// between is not in it: what it had moved is counted nowhere.
type Reaped struct {
	Instance protocol.InstanceID
	By       protocol.InstanceID // the relay
	// Ended is when the lease ended; zero: it was at 0 (superseded, given up, or
	// claimed by a reaper that died).
	Ended time.Time
	Took  time.Duration

	Entries  int // all that the inbox held
	Bad      int // of them: not decodable, now among the dead letters
	Lost     int // of them: ids without a body
	Controls int // of them: controls, which are not moved

	Moved    int // pairs now in another inbox
	Notified int // pairs now in the notification stream
	Dropped  int // pairs settled by rule
}

// add counts what became of some pairs.
func (r *Reaped) add(res inbox.Result) {
	r.Moved += res.Moved
	r.Notified += res.Notified
	r.Dropped += res.Dropped
}

func endOf(l heartbeat.Lease) time.Time {
	if l.Score == 0 {
		return time.Time{}
	}
	return l.Until
}

// write puts r into the history.
func (r *Reaped) write(ctx context.Context, rdb redis.UniversalClient) error {
	ended := int64(0)
	if !r.Ended.IsZero() {
		ended = r.Ended.UnixMilli()
	}
	err := rdb.XAdd(ctx, &redis.XAddArgs{Stream: History, ID: "*", MaxLen: historyMost, Values: []any{
		"instance", string(r.Instance), "by", string(r.By), "ended", ended, "took", r.Took.Milliseconds(),
		"entries", r.Entries, "bad", r.Bad, "lost", r.Lost, "controls", r.Controls,
		"moved", r.Moved, "notified", r.Notified, "dropped", r.Dropped,
	}}).Err()
	if err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	return nil
}

// ReadHistory answers the newest entries of History, at most n, the newest first.
func ReadHistory(ctx context.Context, rdb redis.UniversalClient, n int) ([]Reaped, error) {
	entries, err := rdb.XRevRangeN(ctx, History, "+", "-", int64(n)).Result()
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	all := make([]Reaped, 0, len(entries))
	for _, e := range entries {
		all = append(all, parseReaped(e.Values))
	}
	return all, nil
}

// parseReaped reads what it can: a field of a newer version that means something
// else shows as 0.
func parseReaped(values map[string]any) Reaped {
	number := func(name string) int {
		n, _ := strconv.Atoi(asString(values[name]))
		return n
	}
	r := Reaped{
		Instance: protocol.InstanceID(asString(values["instance"])), By: protocol.InstanceID(asString(values["by"])),
		Took:    time.Duration(number("took")) * time.Millisecond,
		Entries: number("entries"), Bad: number("bad"), Lost: number("lost"), Controls: number("controls"),
		Moved: number("moved"), Notified: number("notified"), Dropped: number("dropped"),
	}
	if ended := number("ended"); ended != 0 {
		r.Ended = time.UnixMilli(int64(ended))
	}
	return r
}

// reaperMetrics of a relay's reaper.
type reaperMetrics struct {
	reaps   *prometheus.CounterVec
	entries *prometheus.CounterVec
	pairs   *prometheus.CounterVec
	adopted prometheus.Counter
}

func newReaperMetrics(reg prometheus.Registerer) *reaperMetrics {
	make := promauto.With(reg)
	return &reaperMetrics{
		reaps:   make.NewCounterVec(counter("reaps_total", "Dead instances reaped; tries that broke off are repeated."), []string{"result"}),
		entries: make.NewCounterVec(counter("reaped_entries_total", "Entries of dead instances' inboxes, by what became of them."), []string{"result"}),
		pairs:   make.NewCounterVec(counter("reaped_pairs_total", "Pairs of dead instances' inboxes, by where they went."), []string{"target"}),
		adopted: make.NewCounter(counter("adopted_inboxes_total", "Inboxes found without a lease.")),
	}
}

func (m *reaperMetrics) moved(res inbox.Result) {
	m.pairs.WithLabelValues("inbox").Add(float64(res.Moved))
	m.pairs.WithLabelValues("notification").Add(float64(res.Notified))
	m.pairs.WithLabelValues("dropped").Add(float64(res.Dropped))
}
