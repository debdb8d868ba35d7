package inbox

import (
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

// Config says how the streams are kept. The zero value is good.
type Config struct {
	// MaxDead is how many dead letters a stream of them keeps, roughly; 0: 10,000.
	MaxDead int64
	// Logger gets what an operator should know; nil: none.
	Logger *slog.Logger
	// Metrics gets the counters; nil: none.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() Config {
	if c.MaxDead == 0 {
		c.MaxDead = 10_000
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// register puts c into reg, or answers the one that is there already: a process
// may hold several users of this package on one registry.
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
