package heartbeat

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Config says how leases are kept. The zero value is good.
type Config struct {
	// Lease is how long a beat lasts; 0: 5 s. All instances of one set must
	// use the same. Greater than 3 × Every.
	Lease time.Duration
	// Every is the time between two beats; 0: 1 s.
	Every time.Duration
	// Logger gets changes of state; nil: none.
	Logger *slog.Logger
}

// Validate reports all that is wrong with the configuration.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if c.Every < time.Millisecond {
		errs = append(errs, fmt.Errorf("heartbeat every: %v is less than 1ms", c.Every))
	}
	if c.Lease <= 3*c.Every {
		errs = append(errs, fmt.Errorf("heartbeat lease: %v must be greater than 3 × every (%v), else one slow beat ends it", c.Lease, c.Every))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Lease == 0 {
		c.Lease = 5 * time.Second
	}
	if c.Every == 0 {
		c.Every = time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// tryTimeout bounds one try at Redis. Two fit into a lease, so that one beat
// that vanishes in the network does not end it; longer than a beat's interval,
// since a slow Redis still does what it was sent.
func (c Config) tryTimeout() time.Duration { return max(c.Every, c.Lease*2/5) }
