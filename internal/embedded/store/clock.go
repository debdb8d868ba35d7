package store

import (
	"cmp"
	"encoding/binary"
	"sync"
	"time"
)

// Timestamp is a cluster time: seconds, and a counter within the second.
type Timestamp struct{ T, I uint32 }

// Compare is -1, 0 or 1.
func (t Timestamp) Compare(u Timestamp) int {
	return cmp.Or(cmp.Compare(t.T, u.T), cmp.Compare(t.I, u.I))
}

func (t Timestamp) next() Timestamp { return Timestamp{t.T, t.I + 1} }

func (t Timestamp) appendKey(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, ctTimestamp), t.T)
	return binary.BigEndian.AppendUint32(dst, t.I)
}

// clock gives out cluster times. They follow the wall clock and never go back,
// also when the wall clock does.
type clock struct {
	mu   sync.Mutex
	last Timestamp
	now  func() time.Time
}

func (c *clock) tick() Timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := uint32(c.now().Unix()); now > c.last.T {
		c.last = Timestamp{T: now}
	}
	c.last = c.last.next()
	return c.last
}

// Now is the time of the latest write.
func (c *clock) latest() Timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}
