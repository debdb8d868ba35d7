package relay

import (
	"context"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// stepped goes on with a pair after a step.
func (d *duty) stepped(r result) {
	t, now := r.task, time.Now()
	t.h.active--
	switch {
	case r.outcome != pairWaits && r.outcome != pairFailed:
		d.n.metrics.pairs.WithLabelValues(string(r.outcome)).Inc()
	case t.h.gone:
	case r.outcome == pairWaits && r.gone:
		t.abandoned = r.entry
		d.later(t, now)
	case r.outcome == pairWaits:
		t.abandoned = inbox.Mark{}
		t.h.waits = append(t.h.waits, t)
		d.tasks.add(t, now.Add(d.cfg.WaitEvery))
	case !now.Before(t.h.limit(d.cfg)):
		t.h.dead = append(t.h.dead, t.pair)
	default:
		if !r.sinkDown {
			t.tries++
			t.failures++
		}
		d.later(t, now.Add(max(d.cfg.pause(t.failures), r.retry)))
	}
	d.review(t.h)
}

func (d *duty) later(t *task, due time.Time) {
	t.h.active++
	d.tasks.add(t, due)
}

// review sees whether anything of an entry is left to do.
func (d *duty) review(h *holding) {
	switch {
	case h.gone || h.active > 0:
	case len(h.dead) > 0:
		d.putDead(h)
	case len(h.waits) > 0:
		d.letGo(h)
	default:
		d.done = append(d.done, h.id)
		d.drop(h)
	}
}

func (d *duty) putDead(h *holding) {
	pairs := h.dead
	h.dead = nil
	h.active++
	d.aside(func(ctx context.Context) (func(), error) {
		err := d.bury(ctx, h, pairs)
		return func() { d.buried(h, pairs) }, err
	})
}

func (d *duty) buried(h *holding, pairs []protocol.Pair) {
	d.n.metrics.pairs.WithLabelValues(string(pairDead)).Add(float64(len(pairs)))
	d.n.log.Warn("gave notifications up, they are in the dead letters", keyEvent, h.note.Item.Event.ID.String(), keyCount, len(pairs))
	h.active--
	d.review(h)
}

// letGo holds an entry no longer, and does not settle it: it comes back by a claim.
func (d *duty) letGo(h *holding) {
	d.n.metrics.letGo.Inc()
	d.drop(h)
}

func (d *duty) drop(h *holding) {
	h.gone = true
	for _, t := range h.waits {
		d.tasks.remove(t)
	}
	h.waits = nil
	if d.held[h.id] == h {
		delete(d.held, h.id)
		d.bytes -= h.size
	}
}
