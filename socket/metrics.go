package socket

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/socket/internal/session"
)

// metrics of one server. Several servers of a process may share a registry: they add up.
type metrics struct {
	sessions  prometheus.Gauge
	whats     [session.Whats]prometheus.Counter
	closes    *prometheus.CounterVec
	read      prometheus.Counter
	settled   prometheus.Counter
	lost      prometheus.Counter
	dead      prometheus.Counter
	bound     prometheus.Counter
	fences    prometheus.Counter
	probe     prometheus.Gauge
	wayLag    prometheus.Gauge
	published prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		sessions:  register(reg, prometheus.NewGauge(opts[prometheus.GaugeOpts]("sessions", "Sessions that are connected."))),
		closes:    register(reg, prometheus.NewCounterVec(opts[prometheus.CounterOpts]("closes_total", "Connections that ended, by close code."), []string{"code"})),
		read:      register(reg, prometheus.NewCounter(opts[prometheus.CounterOpts]("inbox_entries_read_total", "Entries read from the inbox."))),
		settled:   register(reg, prometheus.NewCounter(opts[prometheus.CounterOpts]("inbox_entries_settled_total", "Entries acknowledged and deleted."))),
		lost:      register(reg, prometheus.NewCounter(opts[prometheus.CounterOpts]("inbox_entries_lost_total", "Pending entries whose body was gone."))),
		dead:      register(reg, prometheus.NewCounter(opts[prometheus.CounterOpts]("inbox_entries_dead_total", "Entries put aside as dead letters."))),
		bound:     register(reg, prometheus.NewCounter(opts[prometheus.CounterOpts]("inbox_bound_total", "Times that reading paused since too much was outstanding."))),
		fences:    register(reg, prometheus.NewCounter(opts[prometheus.CounterOpts]("fences_total", "Times that the instance became a new one in place."))),
		probe:     register(reg, prometheus.NewGauge(opts[prometheus.GaugeOpts]("inbox_probe_seconds", "How long the last probe took through the own inbox."))),
		wayLag:    register(reg, prometheus.NewGauge(opts[prometheus.GaugeOpts]("way_probe_seconds", "Age of the last probe that came the whole way from the outbox."))),
		published: register(reg, prometheus.NewCounter(opts[prometheus.CounterOpts]("published_total", "Events committed to the outbox by this server."))),
	}
	whats := register(reg, prometheus.NewCounterVec(opts[prometheus.CounterOpts]("session_total", "What happened to sessions and their events."), []string{"what"}))
	for i := range m.whats {
		m.whats[i] = whats.WithLabelValues(session.What(i).String())
	}
	return m
}

func opts[O prometheus.GaugeOpts | prometheus.CounterOpts](name, help string) O {
	return O(prometheus.Opts{Namespace: "lastmile", Subsystem: "socket", Name: name, Help: help})
}

// register adds c, or returns the one of that name that is there.
func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg == nil {
		return c
	}
	err := reg.Register(c)
	if are, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := are.ExistingCollector.(C); ok {
			return existing
		}
	}
	return c
}

func (m *metrics) count(what session.What, n int) {
	if n > 0 {
		m.whats[what].Add(float64(n))
	}
}

func (m *metrics) closed(code protocol.CloseCode) {
	m.closes.WithLabelValues(strconv.Itoa(int(code))).Inc()
}
