package socket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

const (
	settleBatch = 512
	// handBatch bounds what is handed on in one step, which must end within its time.
	handBatch = 4096
	sweepLook = time.Second
)

// settle acknowledges and deletes entries of which all pairs are settled. While one such step is under
// way the next ones gather.
func (l *life) settle(ctx context.Context) error {
	var b backoff
	for {
		ids := l.tracker.takeDone(settleBatch)
		if len(ids) == 0 {
			select {
			case <-l.tracker.settleWake:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		err := l.settleOnce(ctx, ids)
		switch {
		case err == nil:
			l.s.metrics.settled.Add(float64(len(ids)))
			l.tracker.confirmed(ids)
			b.good(l.s.log, "settle inbox entries")
			continue
		case errors.Is(err, inbox.ErrGone):
			return fmt.Errorf("%w: %w", errLost, err)
		}
		l.tracker.putBack(ids)
		if ctx.Err() != nil {
			return nil
		}
		b.log(l.s.log, "settle inbox entries", err)
		if !b.wait(ctx) {
			return nil
		}
	}
}

func (l *life) settleOnce(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	return l.s.streams.Settle(ctx, l.id, ids...)
}

// handOn brings pairs elsewhere that no session here can ack any more.
func (l *life) handOn(ctx context.Context) error {
	var b backoff
	for {
		tickets, waiting := l.toHandOn(time.Now())
		if len(waiting) == 0 {
			select {
			case <-l.tracker.handWake:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		err := l.handOnOnce(ctx, waiting)
		if err == nil {
			for _, tk := range tickets {
				tk.Settle()
			}
			b.good(l.s.log, "hand pairs on")
			continue
		}
		l.tracker.putHand(tickets)
		if ctx.Err() != nil {
			return nil
		}
		b.log(l.s.log, "hand pairs on", err)
		if !b.wait(ctx) {
			return nil
		}
	}
}

// toHandOn takes the pairs that are still to be handed on: one whose user came back meanwhile is given
// to that session.
func (l *life) toHandOn(now time.Time) ([]*ticket, []inbox.Waiting) {
	var tickets []*ticket
	var waiting []inbox.Waiting
	for _, tk := range l.tracker.takeHand(handBatch) {
		due := tk.pair.Seq <= 0 || l.s.hand.Due(tk.entry.routed, now)
		switch {
		case tk.settled.Load():
		case !due && len(l.s.hub.of(tk.pair.User)) > 0:
			tk.handing.Store(false)
			l.route(tk, now)
		default:
			tickets = append(tickets, tk)
			waiting = append(waiting, inbox.Waiting{Event: tk.event, Pair: tk.pair, Attempt: tk.entry.attempt, Routed: tk.entry.routed})
		}
	}
	return tickets, waiting
}

func (l *life) handOnOnce(ctx context.Context, ws []inbox.Waiting) error {
	ctx, cancel := context.WithTimeout(ctx, 2*commandTimeout)
	defer cancel()
	_, err := l.s.hand.Do(ctx, l.id, inbox.Undelivered, l.here, ws)
	return err
}

// here returns the sessions of a user that really are on this server.
func (l *life) here(user protocol.UserID) []protocol.SessionID {
	var ids []protocol.SessionID
	for _, c := range l.s.hub.of(user) {
		ids = append(ids, c.id)
	}
	return ids
}

// sweep hands on what has waited too long, whatever sessions there are: nothing may wait in an inbox
// longer than a relay goes back after a total loss of Redis.
func (l *life) sweep(ctx context.Context) error {
	for sleep(ctx, sweepLook) {
		now, n := time.Now(), 0
		for _, en := range l.tracker.unsettled(func(en *entry) bool { return l.s.hand.Due(en.routed, now) }) {
			for _, tk := range en.open() {
				tk.handOn()
				n++
			}
		}
		if n > 0 {
			l.s.log.Debug("pairs waited too long for an ack", slog.Int("pairs", n))
		}
	}
	return nil
}
