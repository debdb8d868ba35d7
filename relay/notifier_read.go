package relay

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
)

// taken is what one read brought, and when it was asked for.
type taken struct {
	raws  []inbox.Raw
	asked time.Duration // of the duty's clock
}

// reader brings entries to a duty's loop: first those that this process held before
// it lost its connection, then by turns what others left and what is new.
type reader struct {
	// fixed after construction
	d    *duty
	conn redis.UniversalClient

	// owned by run
	ownFrom   string    // own entries behind this one are not read yet
	ownDone   bool      // all are
	claimFrom string    // where the round of claims goes on; "": at the first entry
	claimAt   time.Time // when the next round is due
	turn      bool      // the last read was a claim: now for what is new
}

// run reads whenever the loop has room, until ctx ends. Its end closes the
// connection, since a blocking read does not end by its context.
func (r *reader) run(ctx context.Context) error {
	defer inbox.CloseOnDone(ctx, r.conn)()
	if err := inbox.New(r.conn, r.d.inboxConfig()).MakeNotifications(ctx); err != nil {
		return err
	}
	for {
		var room int
		select {
		case room = <-r.d.room:
		case <-ctx.Done():
			return nil
		}
		t, err := r.next(ctx, room)
		if err != nil {
			return err
		}
		r.d.n.stats.read.Store(time.Now().UnixMilli())
		r.d.n.redisAnswered()
		select {
		case r.d.taken <- t:
		case <-ctx.Done():
			return nil // they are pending, and given back with all others
		}
	}
}

// next reads once, and waits only where nothing is there to claim.
func (r *reader) next(ctx context.Context, room int) (taken, error) {
	t := taken{asked: r.d.clock()}
	var err error
	if !r.ownDone {
		t.raws, err = r.own(ctx, room)
		return t, err
	}
	if !time.Now().Before(r.claimAt) {
		t.raws, err = r.fairly(ctx, room)
		if err != nil || len(t.raws) > 0 {
			return t, err
		}
	}
	block := min(readBlock, max(time.Until(r.claimAt), time.Millisecond))
	t.raws, err = r.d.streams.ReadNotifications(ctx, r.conn, r.d.consumer, room, block)
	return t, err
}

// fairly claims, and looks for what is new between two claims of a round: entries
// that fail and are let go come back by claims, and must not hide the others.
func (r *reader) fairly(ctx context.Context, room int) ([]inbox.Raw, error) {
	if r.turn {
		r.turn = false
		raws, err := r.d.streams.ReadNotifications(ctx, r.conn, r.d.consumer, room, 0)
		if err != nil || len(raws) > 0 {
			return raws, err
		}
	}
	r.turn = true
	return r.claim(ctx, room)
}

func (r *reader) own(ctx context.Context, room int) ([]inbox.Raw, error) {
	raws, err := r.d.streams.OwnNotifications(ctx, r.conn, r.d.consumer, r.ownFrom, room)
	if err != nil {
		return nil, err
	}
	if len(raws) == 0 {
		r.ownDone, r.ownFrom = true, ""
		return nil, nil
	}
	r.ownFrom = raws[len(raws)-1].ID
	return r.stillOwn(ctx, raws)
}

// stillOwn renews entries that were held for an unknown time, and leaves out those
// that another has claimed.
func (r *reader) stillOwn(ctx context.Context, raws []inbox.Raw) ([]inbox.Raw, error) {
	ids := make([]string, 0, len(raws))
	for _, raw := range raws {
		if raw.Fields != nil {
			ids = append(ids, raw.ID)
		}
	}
	lost, err := r.d.streams.RenewNotifications(ctx, r.d.consumer, ids...)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(raws, func(raw inbox.Raw) bool { return slices.Contains(lost, raw.ID) }), nil
}

// claim takes what nobody renews. A round goes on where the last claim stopped, so
// that entries which come back again and again don't hide those behind them.
func (r *reader) claim(ctx context.Context, room int) ([]inbox.Raw, error) {
	for {
		c, err := r.d.streams.ClaimNotifications(ctx, r.conn, r.d.consumer, r.d.cfg.ClaimIdle, r.claimFrom, room)
		if err != nil {
			return nil, err
		}
		r.claimFrom = c.Next
		if c.Next == "" {
			r.claimAt = time.Now().Add(r.d.cfg.Renew)
		}
		if c.Bodyless {
			r.ownDone = false // that is how their ids are found
		}
		if len(c.Raws) > 0 || c.Next == "" {
			r.d.n.metrics.claims.Add(float64(len(c.Raws)))
			return c.Raws, nil
		}
	}
}
