package socket

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// tracker holds each entry that was read from the inbox until all its pairs are settled and Redis has
// confirmed that it is gone. It belongs to one life of the instance and goes with it.
type tracker struct {
	life *life // fixed after construction

	// wakes: one slot each
	settleWake chan struct{}
	handWake   chan struct{}
	roomWake   chan struct{}

	mu       sync.Mutex
	entries  map[string]*entry
	order    []*entry // as read; those that are gone are taken out by tidyLocked
	bytes    int
	done     []string  // settled, not confirmed
	hand     []*ticket // nobody here can ack them
	failures map[string]int
}

// entry is one inbox entry under way.
type entry struct {
	id      string
	size    int
	read    time.Time
	routed  time.Time
	attempt int
	left    atomic.Int32
	tickets []ticket
	gone    bool // guarded by the tracker's mu
}

// ticket is one pair of an entry. It implements session.Ticket.
type ticket struct {
	tracker *tracker
	entry   *entry
	event   *protocol.Envelope
	pair    protocol.Pair
	holders atomic.Int32 // sessions that may still ack it, and whoever is giving it to them
	settled atomic.Bool
	handing atomic.Bool
}

func newTracker() *tracker {
	return &tracker{
		settleWake: make(chan struct{}, 1), handWake: make(chan struct{}, 1), roomWake: make(chan struct{}, 1),
		entries: map[string]*entry{}, failures: map[string]int{},
	}
}

func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// add takes an entry; false: it is known.
func (t *tracker) add(e inbox.Entry, size int, now time.Time) (*entry, bool) {
	n := e.Batch.Pairs()
	en := &entry{id: e.ID, size: size, read: now, routed: e.Routed, attempt: e.Attempt, tickets: make([]ticket, n)}
	en.left.Store(int32(n) + 1) // one for the reader, so that it is not done before all are given out
	i := 0
	for _, it := range e.Batch.Items {
		for _, p := range it.Pairs {
			tk := &en.tickets[i]
			tk.tracker, tk.entry, tk.event, tk.pair = t, en, it.Event, p
			i++
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.entries[e.ID]; known {
		return nil, false
	}
	t.entries[e.ID] = en
	t.order = append(t.order, en)
	t.bytes += size
	return en, true
}

// given says that all pairs of en have been given out.
func (t *tracker) given(en *entry) { t.less(en) }

func (t *tracker) less(en *entry) {
	if en.left.Add(-1) == 0 {
		t.mu.Lock()
		t.done = append(t.done, en.id)
		t.mu.Unlock()
		wake(t.settleWake)
	}
}

// ack marks an entry without pairs as done.
func (t *tracker) ack(id string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.entries[id]; known {
		return
	}
	en := &entry{id: id, read: now, routed: now}
	t.entries[id] = en
	t.order = append(t.order, en)
	t.done = append(t.done, id)
	wake(t.settleWake)
}

func (t *tracker) knows(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.entries[id]
	return known
}

// failed counts a failure to handle an entry, which is forgotten: it comes again as a lost one.
func (t *tracker) failed(id string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures[id]++
	if en := t.entries[id]; en != nil {
		t.forgetLocked(en)
	}
	return t.failures[id]
}

// takeDone takes what waits for its XACK.
func (t *tracker) takeDone(most int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(most, len(t.done))
	ids := slices.Clone(t.done[:n])
	t.done = append(t.done[:0], t.done[n:]...)
	return ids
}

func (t *tracker) putBack(ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done = append(ids, t.done...)
}

// confirmed forgets entries that Redis has deleted.
func (t *tracker) confirmed(ids []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		delete(t.failures, id)
		if en := t.entries[id]; en != nil {
			t.forgetLocked(en)
		}
	}
	t.tidyLocked()
	wake(t.roomWake)
}

// tidyLocked keeps order no longer than a few times what is under way: one pair that nobody acks must not
// hold all that was read after it in memory.
func (t *tracker) tidyLocked() {
	if len(t.order) <= 2*len(t.entries)+tidySlack {
		return
	}
	t.order = slices.DeleteFunc(t.order, func(en *entry) bool { return en.gone })
	if cap(t.order) > 4*len(t.order)+tidySlack {
		t.order = slices.Clone(t.order)
	}
}

// tidySlack is how many entries that are gone may stay before it is worth a look.
const tidySlack = 64

func (t *tracker) forgetLocked(en *entry) {
	delete(t.entries, en.id)
	en.gone = true
	t.bytes -= en.size
}

// size is what is outstanding.
func (t *tracker) size() (entries, bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries), t.bytes
}

// unsettled returns the entries with open pairs that match, the oldest first.
func (t *tracker) unsettled(match func(*entry) bool) []*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []*entry
	for _, en := range t.order {
		if !en.gone && en.left.Load() > 0 && match(en) {
			found = append(found, en)
		}
	}
	return found
}

// open returns the pairs that are not settled.
func (en *entry) open() []*ticket {
	var open []*ticket
	for i := range en.tickets {
		if tk := &en.tickets[i]; !tk.settled.Load() {
			open = append(open, tk)
		}
	}
	return open
}

// Settle says that the pair is done with.
func (tk *ticket) Settle() {
	if tk.settled.CompareAndSwap(false, true) {
		tk.tracker.less(tk.entry)
	}
}

// handOn queues the pair for its way elsewhere.
func (tk *ticket) handOn() {
	if tk.settled.Load() || !tk.handing.CompareAndSwap(false, true) {
		return
	}
	t := tk.tracker
	t.mu.Lock()
	t.hand = append(t.hand, tk)
	t.mu.Unlock()
	wake(t.handWake)
}

// takeHand takes up to most of what waits to be handed on.
func (t *tracker) takeHand(most int) []*ticket {
	t.mu.Lock()
	defer t.mu.Unlock()
	hand := t.hand
	if len(hand) <= most {
		t.hand = nil
		return hand
	}
	t.hand = hand[most:]
	wake(t.handWake)
	return slices.Clip(hand[:most])
}

func (t *tracker) putHand(hand []*ticket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hand = append(hand, t.hand...)
}
