package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Names of what the outbox keeps in its database. Collection is a default: Config may name another one, and
// DeadCollection and CheckpointCollection stay what they are.
const (
	DefaultDatabase      = "lastmile"
	DefaultCollection    = "outbox"
	DeadCollection       = "outbox_dead"
	CheckpointCollection = "relay_checkpoints"
)

// DeadRetention is how long a document stays in outbox_dead.
const DeadRetention = 30 * 24 * time.Hour

// Config is how a Store works. The zero value is good.
type Config struct {
	// Database holds the outbox. Default: the path of the URL, else "lastmile".
	Database string
	// Collection is the outbox' name. Default: "outbox".
	Collection string

	// ConnectTimeout bounds how long Open, and any later operation, looks for a server that can take it. Default 10 s.
	ConnectTimeout time.Duration
	// AwaitTime is how long the server waits for the first change before Next answers an empty batch.
	// Default 1 s. It bounds how old the token of a quiet stream gets.
	AwaitTime time.Duration
	// BatchSize is the most changes that one Next answers, and the most documents that the server sends at once. Default 500.
	BatchSize int
	// MaxBackoff is the longest pause between two attempts to open a broken stream, or to go on with a scan. Default 5 s.
	MaxBackoff time.Duration
	// CacheBytes bounds the bodies of recent events kept for Fetch. Default 32 MiB; negative: none are kept.
	CacheBytes int

	// Logger gets one line a change of state. nil: none.
	Logger *slog.Logger
	// Metrics gets lastmile_outbox_…; nil: none.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() Config {
	setDefault(&c.Collection, DefaultCollection)
	setDefault(&c.ConnectTimeout, 10*time.Second)
	setDefault(&c.AwaitTime, time.Second)
	setDefault(&c.BatchSize, 500)
	setDefault(&c.MaxBackoff, 5*time.Second)
	setDefault(&c.CacheBytes, 32<<20)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports all that is wrong with c.
func (c Config) Validate() error {
	var errs []error
	for name, d := range map[string]time.Duration{
		"ConnectTimeout": c.ConnectTimeout, "AwaitTime": c.AwaitTime, "MaxBackoff": c.MaxBackoff,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s must not be negative, not %s", name, d))
		}
	}
	if c.BatchSize < 0 {
		errs = append(errs, fmt.Errorf("BatchSize must not be negative, not %d", c.BatchSize))
	}
	if c.Collection == DeadCollection || c.Collection == CheckpointCollection {
		errs = append(errs, fmt.Errorf("Collection must not be %s, which the outbox uses itself", c.Collection))
	}
	return errors.Join(errs...)
}
