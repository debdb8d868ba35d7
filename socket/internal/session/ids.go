package session

import (
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

const (
	maxIDs   = protocol.KnownIDs
	firstIDs = 16
)

// ids remembers which event had which seq, for the last maxIDs seqs up to the newest one, without
// holes. Looking an id up walks them all: half a microsecond at worst, and a map would cost more
// memory than the whole rest of a session.
type ids struct {
	ring    []protocol.EventID // len is a power of two; seq s lies at s mod len
	first   protocol.Seq       // the oldest remembered; nothing if first > last
	last    protocol.Seq
	skipped [maxIDs / 64]uint64 // by s mod maxIDs: nobody was shown that seq
}

// reset forgets all and begins with the ids of a log, of which list[0] has seq base.
func (k *ids) reset(base protocol.Seq, list []protocol.EventID) {
	if over := len(list) - maxIDs; over > 0 {
		base, list = base+protocol.Seq(over), list[over:]
	}
	k.ring, k.skipped = nil, [maxIDs / 64]uint64{}
	k.first, k.last = base, base-1
	for _, id := range list {
		k.add(id, false)
	}
}

// add gives id the next seq.
func (k *ids) add(id protocol.EventID, skipped bool) {
	n := int(k.last - k.first + 1)
	switch {
	case n < len(k.ring):
	case len(k.ring) < maxIDs:
		k.grow(n)
	default:
		k.first++
	}
	k.last++
	k.ring[k.slot(k.last)] = id
	k.mark(k.last, skipped)
}

func (k *ids) grow(n int) {
	old := *k
	k.ring = make([]protocol.EventID, max(firstIDs, 2*len(old.ring)))
	for i := range protocol.Seq(n) {
		k.ring[k.slot(k.first+i)] = old.ring[old.slot(k.first+i)]
	}
}

func (k *ids) slot(seq protocol.Seq) int { return int(seq) & (len(k.ring) - 1) }

func (k *ids) has(seq protocol.Seq) bool { return seq >= k.first && seq <= k.last }

// at returns the id of seq, if it is remembered.
func (k *ids) at(seq protocol.Seq) (protocol.EventID, bool) {
	if !k.has(seq) {
		return protocol.EventID{}, false
	}
	return k.ring[k.slot(seq)], true
}

// differ says whether the log has another id at a seq that is remembered.
func (k *ids) differ(c *registry.Connected) bool {
	for seq := max(k.first, c.Base); seq <= min(k.last, c.End()); seq++ {
		if id, _ := c.At(seq); id != k.ring[k.slot(seq)] {
			return true
		}
	}
	return false
}

// find returns the newest seq of id.
func (k *ids) find(id protocol.EventID) (protocol.Seq, bool) {
	for s := k.last; s >= k.first; s-- {
		if k.ring[k.slot(s)] == id {
			return s, true
		}
	}
	return 0, false
}

func (k *ids) mark(seq protocol.Seq, skipped bool) {
	if !k.has(seq) {
		return
	}
	i := uint(seq) % maxIDs
	if skipped {
		k.skipped[i/64] |= 1 << (i % 64)
	} else {
		k.skipped[i/64] &^= 1 << (i % 64)
	}
}

func (k *ids) isSkipped(seq protocol.Seq) bool {
	i := uint(seq) % maxIDs
	return k.has(seq) && k.skipped[i/64]&(1<<(i%64)) != 0
}
