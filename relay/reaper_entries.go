package relay

import (
	"context"
	"fmt"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
)

// consume hands entries on and settles them, in portions: what is done twice after a
// crash, and what is held in memory, is bounded.
func (g *reaping) consume(ctx context.Context, raws []inbox.Raw) error {
	for lo := 0; lo < len(raws); {
		hi := lo
		for bytes := 0; hi < len(raws) && bytes < reapBytes; hi++ {
			bytes += len(raws[hi].Fields["b"])
		}
		if err := g.portion(ctx, raws[lo:hi]); err != nil {
			return err
		}
		lo = hi
	}
	return nil
}

// portion settles entries when every pair of theirs has found its place.
func (g *reaping) portion(ctx context.Context, raws []inbox.Raw) error {
	if err := g.hold(ctx); err != nil {
		return err
	}
	var waiting []inbox.Waiting
	var did Reaped
	ids := make([]string, 0, len(raws))
	for _, raw := range raws {
		ws, err := g.open(ctx, raw, &did)
		if err != nil {
			return err
		}
		waiting = append(waiting, ws...)
		ids = append(ids, raw.ID)
	}
	res, err := g.hand.Do(ctx, g.dead.ID, inbox.InstanceDead, nil, waiting)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the connection that took the pairs is gone
	}
	if err != nil {
		return err
	}
	if err := g.streams.Settle(ctx, g.dead.ID, ids...); err != nil {
		return err
	}
	did.Entries = len(raws)
	did.add(res)
	g.count(did, res)
	return nil
}

// open answers an entry's pairs. What has none, and never will have, is counted: it
// is to be settled with the others.
func (g *reaping) open(ctx context.Context, raw inbox.Raw, did *Reaped) ([]inbox.Waiting, error) {
	if raw.Fields == nil {
		did.Lost++
		return nil, nil
	}
	e, err := inbox.Decode(raw)
	if err != nil {
		did.Bad++
		if err := g.streams.ToDead(ctx, inbox.Key(g.dead.ID), err.Error(), raw.ID, raw.Deliveries, raw.Fields); err != nil {
			return nil, fmt.Errorf("reap entry %s: %w", raw.ID, err)
		}
		return nil, nil
	}
	if e.Control != nil {
		did.Controls++
		return nil, nil
	}
	ws := make([]inbox.Waiting, 0, e.Batch.Pairs())
	for _, item := range e.Batch.Items {
		for _, pair := range item.Pairs {
			ws = append(ws, inbox.Waiting{Event: item.Event, Pair: pair, Attempt: e.Attempt, Routed: e.Routed})
		}
	}
	return ws, nil
}

// lost counts ids that Redis dropped itself, since their bodies were gone.
func (g *reaping) lost(n int) {
	g.did.Entries += n
	g.did.Lost += n
	g.metrics.entries.WithLabelValues("lost").Add(float64(n))
}

// count adds a portion when it is settled, so that no try is counted twice.
func (g *reaping) count(did Reaped, res inbox.Result) {
	g.did.Entries += did.Entries
	g.did.Bad += did.Bad
	g.did.Lost += did.Lost
	g.did.Controls += did.Controls
	g.did.add(res)
	for result, n := range map[string]int{
		"bad": did.Bad, "lost": did.Lost, "control": did.Controls,
		"handed_on": did.Entries - did.Bad - did.Lost - did.Controls,
	} {
		g.metrics.entries.WithLabelValues(result).Add(float64(n))
	}
	g.metrics.moved(res)
}
