package outbox

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// envelopeOverhead is about what an envelope costs in memory beside its body.
const envelopeOverhead = 256

// cache keeps recent envelopes, bounded by their bytes: one event may have 100 bytes or 256 KiB.
type cache struct {
	limit int // fixed

	mu    sync.Mutex
	lru   *simplelru.LRU[protocol.EventID, *protocol.Envelope] // guarded by mu
	bytes int                                                  // guarded by mu
}

func newCache(limit int) *cache {
	c := &cache{limit: limit}
	if limit <= 0 {
		return c
	}
	c.lru, _ = simplelru.NewLRU(limit/envelopeOverhead+1, func(_ protocol.EventID, v *protocol.Envelope) {
		c.bytes -= cost(v)
	})
	return c
}

func cost(v *protocol.Envelope) int { return envelopeOverhead + len(v.Body) }

// add keeps v, unless it alone would take a fair part of the cache.
func (c *cache) add(v *protocol.Envelope) {
	if c.lru == nil || cost(v) > c.limit/16 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lru.Contains(v.ID) {
		return // the first one stands
	}
	c.lru.Add(v.ID, v)
	c.bytes += cost(v)
	for c.bytes > c.limit {
		c.lru.RemoveOldest()
	}
}

// has says whether add would change nothing.
func (c *cache) has(id protocol.EventID) bool {
	if c.lru == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lru.Contains(id)
}

// take moves what is known from ids into found, and answers the rest.
func (c *cache) take(ids []protocol.EventID, found map[protocol.EventID]*protocol.Envelope) []protocol.EventID {
	if c.lru == nil {
		return ids
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var rest []protocol.EventID
	for _, id := range ids {
		if v, ok := c.lru.Get(id); ok {
			found[id] = v
			continue
		}
		rest = append(rest, id)
	}
	return rest
}
