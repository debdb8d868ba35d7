package relay

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

const (
	backoffFirst = 50 * time.Millisecond
	backoffMost  = 5 * time.Second
)

// backoff spaces tries: the first one at once, then full jitter under a cap that
// doubles.
type backoff struct{ cap time.Duration }

// wait pauses before the next try; false: ctx has ended.
func (b *backoff) wait(ctx context.Context) bool {
	pause := time.Duration(0)
	if b.cap > 0 {
		pause = rand.N(b.cap)
	}
	b.cap = min(max(2*b.cap, backoffFirst), backoffMost)
	return pauseFor(ctx, pause)
}

func (b *backoff) reset() { b.cap = 0 }

func pauseFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// trouble logs a state once when it begins and once when it is over, not per try.
type trouble struct{ on bool }

func (s *trouble) begin(log *slog.Logger, what string, err error) {
	if !s.on {
		log.Warn(what, keyError, err)
	}
	s.on = true
}

func (s *trouble) end(log *slog.Logger, what string) {
	if s.on {
		log.Info(what + ": well again")
	}
	s.on = false
}

// Keys of log records.
const (
	keyError     = "error"
	keyPartition = "partition"
	keyFence     = "fence"
	keyEvent     = "event"
	keyUser      = "user"
	keyReason    = "reason"
	keyPlace     = "place"
	keyCount     = "count"
)
