package socket

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

const (
	// commandTimeout bounds one command, script or query.
	commandTimeout = 3 * time.Second
	firstBackoff   = 50 * time.Millisecond
	lastBackoff    = 2 * time.Second
)

// backoff is the pauses between tries, with full jitter; it logs once per change of state.
type backoff struct{ tries int }

func (b *backoff) log(l *slog.Logger, what string, err error) {
	if b.tries == 0 {
		l.Warn(what+" meets trouble", slog.Any("error", err))
	}
}

// wait returns false if ctx ended.
func (b *backoff) wait(ctx context.Context) bool {
	cap := min(lastBackoff, firstBackoff<<min(b.tries, 10))
	b.tries++
	return sleep(ctx, rand.N(cap)+time.Millisecond)
}

func (b *backoff) good(l *slog.Logger, what string) {
	if b.tries > 0 {
		l.Info(what + " works again")
		b.tries = 0
	}
}

// sleep returns false if ctx ended before d was over.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
