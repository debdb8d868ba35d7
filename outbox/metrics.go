package outbox

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the outbox. Stores that share a registerer count together; without one they count for nobody.
type metrics struct {
	published prometheus.Counter
	changes   *prometheus.CounterVec
	reopened  *prometheus.CounterVec
	lost      prometheus.Counter
	queries   prometheus.Counter
	fetched   *prometheus.CounterVec
	buried    prometheus.Counter
	deleted   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	var errs []error
	counter := func(name, help string) prometheus.Counter {
		return register(reg, &errs, prometheus.NewCounter(counterOpts(name, help)))
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return register(reg, &errs, prometheus.NewCounterVec(counterOpts(name, help), []string{label}))
	}
	m := &metrics{
		published: counter("published_total", "Events given to Publish and committed, those that were there already included."),
		changes:   vec("changes_total", "Documents read from streams and scans, by what they are: event or fault.", "kind"),
		reopened:  vec("stream_reopens_total", "Change streams opened again, by cause.", "cause"),
		lost:      counter("history_lost_total", "Times that a change stream could not go on from its place."),
		queries:   counter("fetch_queries_total", "Queries for the contents of events."),
		fetched:   vec("fetched_total", "Events asked for by id, by where they were found.", "from"),
		buried:    counter("dead_documents_total", "Documents put into outbox_dead."),
		deleted:   counter("deleted_total", "Documents deleted past their retention."),
	}
	return m, errors.Join(errs...)
}

func counterOpts(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Namespace: "lastmile", Subsystem: "outbox", Name: name, Help: help}
}

// register answers the collector that counts: c, or the one that another Store registered before.
func register[C prometheus.Collector](reg prometheus.Registerer, errs *[]error, c C) C {
	if reg == nil {
		return c
	}
	err := reg.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	if err != nil {
		*errs = append(*errs, err)
	}
	return c
}
