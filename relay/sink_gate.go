package relay

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// SinkState is how a sink does.
type SinkState string

// The states of a sink.
const (
	SinkWell     SinkState = "well"
	SinkFailing  SinkState = "failing"  // it fails again and again: one try at a time, with pauses
	SinkDisabled SinkState = "disabled" // nothing is sent until the notifier is started again
)

// gateFailures is how many failures of the sink in a row close the gate.
const gateFailures = 16

// gate stands before a sink, so that a receiver which is down is not asked by every
// notice that waits.
type gate struct {
	// fixed after construction
	first, most time.Duration // caps of the pauses
	log         *slog.Logger
	tries       *prometheus.CounterVec

	mu       sync.Mutex
	state    SinkState
	failures int // in a row
	cap      time.Duration
	until    time.Time // failing: no try before
	last     error
}

func newGate(cfg NotifierConfig, tries *prometheus.CounterVec) *gate {
	return &gate{first: cfg.BackoffFirst, most: min(cfg.BackoffMost, time.Minute), log: cfg.Logger, tries: tries, state: SinkWell}
}

// enter says whether a try may be made now, and if not when to ask again (zero:
// never). inFlight is the number of tries under way. While the sink fails each
// admission shuts the gate for a pause.
func (g *gate) enter(now time.Time, inFlight int) (ok bool, again time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.state == SinkWell:
		return true, time.Time{}
	case g.state == SinkDisabled:
		return false, time.Time{}
	case inFlight > 0 || now.Before(g.until):
		return false, later(g.until, now.Add(g.first))
	}
	g.until = now.Add(g.pauseLocked())
	return true, time.Time{}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (g *gate) pauseLocked() time.Duration {
	g.cap = min(max(2*g.cap, g.first), g.most)
	return g.cap/2 + rand.N(g.cap/2+1)
}

// tried takes note of a try's outcome.
func (g *gate) tried(err error, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		g.tries.WithLabelValues("taken").Inc()
		g.openLocked()
	case errors.Is(err, ErrSinkDisabled):
		g.tries.WithLabelValues("disabled").Inc()
		g.disableLocked(err)
	default:
		g.tries.WithLabelValues("failed").Inc()
		g.failLocked(err, now)
	}
}

func (g *gate) openLocked() {
	if g.state == SinkDisabled {
		return // a try that was under way
	}
	if g.state == SinkFailing {
		g.log.Info("the sink takes notifications again")
	}
	g.state, g.failures, g.cap, g.last = SinkWell, 0, 0, nil
}

func (g *gate) disableLocked(err error) {
	if g.state != SinkDisabled {
		g.log.Error("alarm: the receiver has disabled the endpoint (410): nothing is notified until this notifier is started again", keyError, err)
	}
	g.state, g.last = SinkDisabled, err
}

func (g *gate) failLocked(err error, now time.Time) {
	if g.state == SinkDisabled {
		return
	}
	g.last = err
	if isAboutOne(err) {
		return
	}
	g.failures++
	if g.failures < gateFailures || g.state == SinkFailing {
		return
	}
	g.state = SinkFailing
	g.until = now.Add(g.pauseLocked())
	g.log.Warn("the sink fails, going on with backoff", keyError, err)
}

// isAboutOne says that a failure concerns the notice and not the receiver: it has
// refused this one. Those answers that concern the sender count as the sink's.
func isAboutOne(err error) bool {
	var said *SinkError
	if !errors.As(err, &said) || said.Status < 400 || said.Status > 499 {
		return false
	}
	switch said.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return true
}

// look answers the state, and what went wrong last.
func (g *gate) look() (SinkState, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state, g.last
}
