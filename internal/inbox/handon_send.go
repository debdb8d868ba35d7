package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// parcel is one append: an entry for an instance, and which of the waiting pairs
// it carries.
type parcel struct {
	to      protocol.InstanceID
	entry   Entry
	members []int
}

// route is what pairs must have in common to travel in one entry.
type route struct {
	to      protocol.InstanceID
	attempt int
	routed  int64 // ms, as the entry says it
}

// pack makes the entries, in the order of the first pair of each route.
func (m *move) pack(places map[protocol.UserID][]protocol.InstanceID) []parcel {
	packers := map[route]*packer{}
	var order []route
	for i, w := range m.ws {
		if !m.movable(w) {
			continue
		}
		for _, to := range places[w.Pair.User] {
			r := route{to, w.Attempt + 1, w.Routed.UnixMilli()}
			if packers[r] == nil {
				packers[r] = newPacker()
				order = append(order, r)
			}
			packers[r].add(i, w)
		}
	}
	var parcels []parcel
	for _, r := range order {
		packers[r].split(func(b protocol.Batch, members []int) {
			parcels = append(parcels, parcel{r.to, Entry{
				Batch: b, From: m.from, Attempt: r.attempt, Routed: time.UnixMilli(r.routed),
			}, members})
		})
	}
	return parcels
}

// append brings the entries to their inboxes and marks what arrived; it answers
// the instances that are gone.
func (m *move) append(ctx context.Context, parcels []parcel) (map[protocol.InstanceID]bool, error) {
	gone := map[protocol.InstanceID]bool{}
	err := inChunks(len(parcels), func(i int) int { return batchSize(parcels[i].entry.Batch) }, func(lo, hi int) error {
		p := m.rdb.Pipeline()
		cmds := make([]*redis.StringCmd, 0, hi-lo)
		for _, out := range parcels[lo:hi] {
			cmds = append(cmds, QueueAppend(ctx, p, out.to, out.entry))
		}
		if _, err := p.Exec(ctx); redisconn.IsTrouble(err) {
			return err
		}
		for i, cmd := range cmds {
			out := parcels[lo+i]
			switch _, err := Appended(cmd); {
			case errors.Is(err, ErrGone):
				gone[out.to] = true
			case err != nil:
				return err
			default:
				m.mark(out.members)
			}
		}
		return nil
	})
	return gone, err
}

func (m *move) mark(members []int) {
	for _, i := range members {
		if !m.placed[i] {
			m.placed[i] = true
			m.counts[wasMoved]++
		}
	}
}

// notify puts what has found no other inbox into the notification stream, or
// drops it by rule.
func (m *move) notify(ctx context.Context) error {
	pack := newPacker()
	for i, w := range m.ws {
		switch {
		case m.placed[i]:
		case w.Event.SkipNotify:
			m.counts[wasNotNotified]++
		case !m.cfg.NotifyEnabled:
			m.counts[wasDisabled]++
		default:
			pack.add(i, w)
			m.counts[wasNotified]++
		}
	}
	size := func(i int) int { return batchSize(protocol.Batch{Items: pack.items[i : i+1]}) }
	return inChunks(len(pack.items), size, func(lo, hi int) error {
		p := m.rdb.Pipeline()
		var cmds []*redis.StringCmd
		for _, item := range pack.items[lo:hi] {
			cmds = append(cmds, QueueNotification(ctx, p, Notification{Item: item, Reason: m.reason, At: m.now})...)
		}
		_, err := p.Exec(ctx)
		for _, cmd := range cmds {
			// Nobody else could take the pair: here an error about the key is trouble too.
			err = firstError(err, cmd.Err())
		}
		return err
	})
}

// packer gathers pairs of one event into one item. No pair gets before an
// earlier one of the same user.
type packer struct {
	items   []protocol.Item
	members [][]int // of each item, its pairs' places among the waiting
	at      map[protocol.EventID]int
	last    map[protocol.UserID]int // the item of the user's last pair
}

func newPacker() *packer {
	return &packer{at: map[protocol.EventID]int{}, last: map[protocol.UserID]int{}}
}

func (p *packer) add(i int, w Waiting) {
	at, ok := p.at[w.Event.ID]
	if !ok || at < p.last[w.Pair.User] {
		at = len(p.items)
		p.at[w.Event.ID] = at
		p.items = append(p.items, protocol.Item{Event: w.Event})
		p.members = append(p.members, nil)
	}
	p.items[at].Pairs = append(p.items[at].Pairs, w.Pair)
	p.members[at] = append(p.members[at], i)
	p.last[w.Pair.User] = at
}

// split calls each with the batches. Split keeps the order of items and pairs,
// so the members of a batch are the next ones.
func (p *packer) split(each func(protocol.Batch, []int)) {
	var members []int
	for _, some := range p.members {
		members = append(members, some...)
	}
	for _, b := range protocol.Split(p.items) {
		n := b.Pairs()
		each(b, members[:n:n])
		members = members[n:]
	}
}

// batchSize is about how many bytes a batch adds to a pipeline.
func batchSize(b protocol.Batch) int {
	n := 0
	for _, item := range b.Items {
		n += len(item.Event.Body) + 64*len(item.Pairs)
	}
	return n
}
