package relay

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// NotifierStatus is what a notifier shows of itself.
type NotifierStatus struct {
	Instance  protocol.InstanceID `json:"instance"`
	Ready     bool                `json:"ready"`
	Reason    string              `json:"reason,omitempty"` // why it is not ready
	Sink      string              `json:"sink"`
	SinkState SinkState           `json:"sinkState"`
	SinkError string              `json:"sinkError,omitempty"` // what went wrong last
	Held      int64               `json:"held"`                // entries that this notifier has read and not done
	Waiting   int64               `json:"waiting"`             // entries in the stream
	Oldest    float64             `json:"oldestSeconds"`       // age of the oldest of them
	Alarms    []string            `json:"alarms,omitempty"`
}

// Ready is nil when this notifier sees Redis and its own loop runs. How the sink
// does stands in the status: it is further away.
func (n *Notifier) Ready() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.trouble != nil {
		return fmt.Errorf("redis: %w", n.trouble)
	}
	if age := time.Since(n.answered); age > 3*lookEvery {
		return fmt.Errorf("redis: no answer since %s", n.answered.UTC().Format(time.RFC3339))
	}
	return nil
}

// Status shows what this notifier does.
func (n *Notifier) Status() NotifierStatus {
	state, last := n.gate.look()
	s := NotifierStatus{
		Ready: true, Sink: n.sink.String(), SinkState: state,
		Held: n.stats.held.Load(), Waiting: n.stats.length.Load(), Oldest: n.oldestAge().Seconds(),
	}
	if last != nil {
		s.SinkError = last.Error()
	}
	if err := n.Ready(); err != nil {
		s.Ready, s.Reason = false, err.Error()
	}
	n.mu.Lock()
	if len(n.ids) > 0 {
		s.Instance = n.ids[len(n.ids)-1]
	}
	n.mu.Unlock()
	for _, a := range []*alarm{&n.stats.unread, &n.stats.tooMany} {
		if text := a.text(); text != "" {
			s.Alarms = append(s.Alarms, text)
		}
	}
	if state == SinkDisabled {
		s.Alarms = append(s.Alarms, "the receiver has disabled the endpoint")
	}
	return s
}

func (n *Notifier) oldestAge() time.Duration {
	ms := n.stats.oldest.Load()
	if ms == 0 {
		return 0
	}
	return max(0, time.Since(time.UnixMilli(ms)))
}

// alarm is logged when it begins and when it is over.
type alarm struct {
	mu sync.Mutex
	on string // what it says; "": off
}

func (a *alarm) set(log *slog.Logger, on bool, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case on && a.on == "":
		log.Error("alarm", keyReason, text)
		a.on = text
	case !on && a.on != "":
		log.Info("alarm is over", keyReason, a.on)
		a.on = ""
	}
}

func (a *alarm) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.on
}

// notifierMetrics: labels have few values; no user or event is one.
type notifierMetrics struct {
	pairs  *prometheus.CounterVec
	tries  *prometheus.CounterVec
	send   prometheus.Histogram
	delay  prometheus.Histogram
	claims prometheus.Counter
	letGo  prometheus.Counter
	bodies prometheus.Counter
	breaks prometheus.Counter
}

func newNotifierMetrics(reg prometheus.Registerer, n *Notifier) *notifierMetrics {
	make := promauto.With(reg)
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "lastmile", Subsystem: "notifier", Name: name, Help: help}
	}
	gauge := func(name, help string, value func() float64) {
		make.NewGaugeFunc(prometheus.GaugeOpts(opts(name, help)), value)
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return make.NewHistogram(prometheus.HistogramOpts{Namespace: "lastmile", Subsystem: "notifier", Name: name, Help: help, Buckets: buckets})
	}
	gauge("held_entries", "Entries that this notifier has read and not done.", func() float64 { return float64(n.stats.held.Load()) })
	gauge("held_waiting_pairs", "Pairs that wait for another entry of the same pair.", func() float64 { return float64(n.stats.waiting.Load()) })
	gauge("waiting_entries", "Entries in the notification stream.", func() float64 { return float64(n.stats.length.Load()) })
	gauge("oldest_seconds", "Age of the oldest entry in the notification stream.", func() float64 { return n.oldestAge().Seconds() })
	gauge("sink_disabled", "1 where the receiver has disabled the endpoint.", func() float64 {
		if state, _ := n.gate.look(); state == SinkDisabled {
			return 1
		}
		return 0
	})
	return &notifierMetrics{
		pairs:  make.NewCounterVec(opts("pairs_total", "Pairs done, by outcome."), []string{"outcome"}),
		tries:  make.NewCounterVec(opts("tries_total", "Calls of the sink, by result."), []string{"result"}),
		send:   histogram("send_seconds", "Time that a call of the sink took.", prometheus.ExponentialBuckets(0.001, 2, 15)),
		delay:  histogram("delay_seconds", "Time from the handing over of a pair to its notification.", prometheus.ExponentialBuckets(0.1, 2, 20)),
		claims: make.NewCounter(opts("claimed_entries_total", "Entries taken that another notifier, or this one, had left.")),
		letGo:  make.NewCounter(opts("let_go_entries_total", "Entries let go because only waiting pairs were left, or for room.")),
		bodies: make.NewCounter(opts("bodyless_entries_total", "Entries acknowledged whose body was gone.")),
		breaks: make.NewCounter(opts("breaks_total", "Times that everything held was forgotten after trouble of Redis.")),
	}
}
