package outbox

import (
	"math/rand/v2"
	"time"
)

const shortestPause = 100 * time.Millisecond

// backoff gives pauses between attempts: a random part of a time that doubles up to the longest.
type backoff struct {
	longest time.Duration
	tries   int
}

func (b *backoff) next() time.Duration {
	limit := min(shortestPause<<min(b.tries, 16), b.longest)
	b.tries++
	return rand.N(max(limit, 1))
}

func (b *backoff) reset() { b.tries = 0 }
