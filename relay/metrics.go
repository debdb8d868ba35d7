package relay

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of a relay. Labels have few values; no user or event is one.
type metrics struct {
	events      prometheus.Counter
	pairs       *prometheus.CounterVec
	dropped     *prometheus.CounterVec
	dead        prometheus.Counter
	batch       prometheus.Histogram
	takeovers   prometheus.Counter
	breaks      prometheus.Counter
	scans       prometheus.Counter
	historyLost prometheus.Counter
	redisEmpty  prometheus.Counter
	reopened    prometheus.Counter
	gone        prometheus.Counter
	checkpoints *prometheus.CounterVec
	probe       prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, r *Relay) *metrics {
	make := promauto.With(reg)
	make.NewGaugeFunc(gauge("partitions", "Partitions that this relay holds."),
		func() float64 { return float64(len(r.holding())) })
	make.NewGaugeFunc(gauge("lag_seconds", "Age of the oldest place of the partitions held: commit time behind now."),
		func() float64 { return r.lag().Seconds() })
	return &metrics{
		events:      make.NewCounter(counter("events_total", "Events routed, again ones too.")),
		pairs:       make.NewCounterVec(counter("pairs_total", "Pairs of event and recipient, by where they went."), []string{"outcome"}),
		dropped:     make.NewCounterVec(counter("dropped_total", "Events that came too late."), []string{"reason"}),
		dead:        make.NewCounter(counter("dead_documents_total", "Documents of the outbox that are no events.")),
		batch:       make.NewHistogram(histogram("batch_events", "Documents in a batch.", prometheus.ExponentialBuckets(1, 2, 11))),
		takeovers:   make.NewCounter(counter("takeovers_total", "Leases of partitions taken.")),
		breaks:      make.NewCounter(counter("breaks_total", "Tenures of a partition that ended by trouble.")),
		scans:       make.NewCounter(counter("scans_total", "Scans of the outbox.")),
		historyLost: make.NewCounter(counter("history_lost_total", "Times that the change stream could not go on from its place.")),
		redisEmpty:  make.NewCounter(counter("redis_empty_total", "Times that Redis was found without the marker it had.")),
		reopened:    make.NewCounter(counter("stream_reopened_total", "Streams that a probe did not come back on.")),
		gone:        make.NewCounter(counter("instances_gone_total", "Inbox entries whose instance was gone.")),
		checkpoints: make.NewCounterVec(counter("checkpoint_writes_total", "Writes of checkpoints to MongoDB."), []string{"result"}),
		probe:       make.NewHistogram(histogram("probe_seconds", "Time from a probe's insert to its return on the stream.", prometheus.ExponentialBuckets(0.001, 2, 14))),
	}
}

func counter(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Namespace: "lastmile", Subsystem: "relay", Name: name, Help: help}
}

func gauge(name, help string) prometheus.GaugeOpts {
	return prometheus.GaugeOpts(counter(name, help))
}

func histogram(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Namespace: "lastmile", Subsystem: "relay", Name: name, Help: help, Buckets: buckets}
}

// pair counts where pairs went.
func (m *metrics) pair(outcome string, n int) { m.pairs.WithLabelValues(outcome).Add(float64(n)) }
