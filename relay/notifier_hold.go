package relay

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// holding is an entry that is held. All but fresh is owned by the duty's loop.
type holding struct {
	id         string
	note       inbox.Notification
	deliveries int
	size       int
	fresh      atomic.Int64 // when it was last known to be ours: a time of the duty's clock

	active int             // tasks that are due some time, or under way
	waits  []*task         // tasks that wait for another entry
	dead   []protocol.Pair // past the limit, to be put aside together
	gone   bool            // no longer held: what is left of it in the heap is void
}

// limit is when its pairs are given up.
func (h *holding) limit(cfg NotifierConfig) time.Time { return h.note.At.Add(cfg.Limit) }

// task is one pair that is not done.
type task struct {
	h         *holding
	pair      protocol.Pair
	due       time.Time
	failures  int        // also what the entry's deliveries stand for
	tries     int        // that failed, since the entry was read
	abandoned inbox.Mark // the mark of another entry that is gone
	place     int        // in the heap; -1: not there
}

// unwait takes a task out of those that wait for another entry; false: it is none.
func (t *task) unwait() bool {
	i := slices.Index(t.h.waits, t)
	if i < 0 {
		return false
	}
	t.h.waits = slices.Delete(t.h.waits, i, i+1)
	return true
}

// notice is what the sink gets.
func (t *task) notice() Notice {
	return Notice{User: t.pair.User, Event: t.h.note.Item.Event, Reason: t.h.note.Reason, At: t.h.note.At}
}

// tasks are ordered by the time they are due.
type tasks []*task

func (s tasks) Len() int           { return len(s) }
func (s tasks) Less(i, j int) bool { return s[i].due.Before(s[j].due) }
func (s tasks) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

// Push is heap.Interface's.
func (s *tasks) Push(x any) {
	t := x.(*task)
	t.place = len(*s)
	*s = append(*s, t)
}

// Pop is heap.Interface's.
func (s *tasks) Pop() any {
	last := len(*s) - 1
	t := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	t.place = -1
	return t
}

func (s *tasks) add(t *task, due time.Time) {
	t.due = due
	heap.Push(s, t)
}

// first is the task that is due first, void ones left out; nil: none.
func (s *tasks) first() *task {
	for len(*s) > 0 {
		if t := (*s)[0]; !t.h.gone {
			return t
		}
		heap.Pop(s)
	}
	return nil
}

// remove takes out a task that may be there.
func (s *tasks) remove(t *task) {
	if t.place >= 0 {
		heap.Remove(s, t.place)
	}
}

// pause is that before the next try after so many failures: full jitter under a cap
// that doubles.
func (c NotifierConfig) pause(failures int) time.Duration {
	most := c.BackoffMost
	if shift := max(failures-1, 0); shift < 32 && c.BackoffFirst<<shift < most {
		most = c.BackoffFirst << shift
	}
	if most <= 0 {
		return 0
	}
	return rand.N(most)
}

// hold makes a holding of an entry, and its tasks. A user named twice is one pair:
// the one that is the later to be acked.
func (c NotifierConfig) hold(raw inbox.Raw, note inbox.Notification, now time.Time) (*holding, []*task) {
	if note.At.After(now) {
		note.At = now // a clock ahead of ours must not keep it back for longer than the grace
	}
	h := &holding{id: raw.ID, note: note, deliveries: raw.Deliveries, size: sizeOf(raw) + len(note.Item.Pairs)*taskSize}
	at := make(map[protocol.UserID]int, len(note.Item.Pairs))
	var list []*task
	for _, p := range note.Item.Pairs {
		if i, again := at[p.User]; again {
			if p.Seq > list[i].pair.Seq {
				list[i].pair = p
			}
			continue
		}
		at[p.User] = len(list)
		list = append(list, &task{h: h, pair: p, due: note.At.Add(c.Grace), place: -1, failures: min(max(raw.Deliveries-1, 0), failuresKept)})
	}
	h.active = len(list)
	return h, list
}

// failuresKept is the most failures that an entry's deliveries stand for: it may
// have been handed round without a try.
const failuresKept = 5

// taskSize is what a pair takes beside its part of the entry, roughly.
const taskSize = 200

func sizeOf(raw inbox.Raw) int {
	n := len(raw.ID)
	for k, v := range raw.Fields {
		n += len(k) + len(v)
	}
	return n
}
