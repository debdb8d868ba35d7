package relay

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

// outcome is where a pair's way ended, or how it goes on.
type outcome string

const (
	pairSent      outcome = "sent"
	pairAcked     outcome = "acked"     // the user has seen it meanwhile
	pairExpired   outcome = "expired"   // too late to be of use
	pairRevoked   outcome = "revoked"   // the user's sessions of that time were ended
	pairMuted     outcome = "muted"     // ephemeral, or notify: false
	pairDuplicate outcome = "duplicate" // notified, or given up, by another entry
	pairDead      outcome = "dead"

	pairWaits  outcome = "waits"  // for another entry
	pairFailed outcome = "failed" // to be tried again, or given up
)

// errStale says that a renewal is so old that the entry may be another's.
var errStale = errors.New("this process was held up for longer than it may hold an entry")

// result is what came of one step with one pair.
type result struct {
	task     *task
	outcome  outcome
	entry    inbox.Mark    // waits: the mark that it waits for; its entry is gone if abandoned
	gone     bool          // waits: the entry is gone, so go on at once
	retry    time.Duration // failed: what the receiver asked for
	sinkDown bool          // failed: not tried, the sink takes nothing
	trouble  error         // the life is over
}

// notify does a pair's whole step: judge, mark, send, mark. It runs beside the loop
// and writes to nothing of it. send is false where the sink may not be asked.
func (d *duty) notify(ctx context.Context, t *task, send bool) result {
	r := result{task: t}
	skip, err := d.skip(ctx, t)
	if err != nil || skip != "" {
		r.outcome, r.trouble = skip, err
		return r
	}
	event := t.h.note.Item.Event.ID
	mark, err := d.streams.TakeMark(ctx, event, t.pair.User, t.h.id, t.abandoned, d.cfg.MarkAge)
	if err != nil {
		return d.failedAt(r, err)
	}
	if mark.State != inbox.MarkPending {
		r.outcome = pairDuplicate
		return r
	}
	if mark.Entry != t.h.id {
		return d.wait(ctx, r, mark)
	}
	if !d.n.sent.Contains(t.notice().ID()) {
		if !send {
			r.outcome, r.sinkDown = pairFailed, true
			return r
		}
		if d.age(t.h) > d.cfg.stale() {
			// Looked at last: another that has claimed the entry has the same mark.
			r.trouble = errStale
			return r
		}
		if err := d.send(ctx, t); err != nil {
			return d.failedAt(r, err)
		}
	}
	mark, err = d.streams.FinishMark(ctx, event, t.pair.User, t.h.id, inbox.MarkSent, d.cfg.MarkAge)
	if err == nil && mark.State == inbox.MarkNone {
		// It was there: Redis has lost what was written. What the sink took is known.
		err = errors.New("a mark is gone")
	}
	if err != nil && redisconn.IsTrouble(err) {
		r.trouble = err
		return r
	}
	r.outcome = pairSent
	return r
}

// failedAt tells trouble of Redis from an error about one key, or of the sink.
func (d *duty) failedAt(r result, err error) result {
	var reply redis.Error
	var sinkErr *sinkFailure
	switch {
	case errors.As(err, &sinkErr):
		var said *SinkError
		if errors.As(err, &said) {
			r.retry = said.RetryAfter
		}
	case errors.As(err, &reply) && !redisconn.IsTrouble(err):
		d.n.log.Warn("a mark can't be written", keyError, err)
	default:
		r.trouble = err
		return r
	}
	r.outcome = pairFailed
	return r
}

// sinkFailure is any error of the sink.
type sinkFailure struct{ error }

func (e *sinkFailure) Unwrap() error { return e.error }

// send calls the sink. The call is not ended by the end of a life: what the sink
// took must be known, or it is sent again.
func (d *duty) send(ctx context.Context, t *task) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.SendTimeout)
	defer cancel()
	notice, began := t.notice(), time.Now()
	err := d.n.sink.Send(ctx, notice)
	d.n.metrics.send.Observe(time.Since(began).Seconds())
	d.n.gate.tried(err, time.Now())
	if err != nil {
		return &sinkFailure{err}
	}
	d.n.sent.Add(notice.ID(), struct{}{})
	d.n.metrics.delay.Observe(max(0, time.Since(notice.At)).Seconds())
	return nil
}

// wait looks whether the entry that another mark names still exists.
func (d *duty) wait(ctx context.Context, r result, mark inbox.Mark) result {
	there, err := d.streams.HasNotification(ctx, mark.Entry)
	r.outcome, r.entry, r.gone, r.trouble = pairWaits, mark, !there, err
	return r
}

// skip judges whether the pair is to be notified at all; "": it is. A user whose
// keys can't be read is notified: rather twice than never.
func (d *duty) skip(ctx context.Context, t *task) (outcome, error) {
	event := t.h.note.Item.Event
	switch {
	case event.Ephemeral || event.SkipNotify:
		return pairMuted, nil
	case event.Expired(time.Now()):
		return pairExpired, nil
	}
	user, err := d.registry.Lookup(ctx, t.pair.User)
	if err != nil {
		return "", onlyTrouble(err)
	}
	if !user.Revoked.IsZero() && !event.Time.After(user.Revoked) {
		return pairRevoked, nil
	}
	acked, err := d.isAcked(ctx, user, t.pair, event.ID)
	if err != nil || !acked {
		return "", onlyTrouble(err)
	}
	return pairAcked, nil
}

// isAcked says whether the user has acked the event: by the pair's seq within its
// epoch, and where it has none (he had no log) by the event's place in today's log.
// A place found after the ack was read is an earlier one only in the same epoch.
//
// A pair of another epoch is older than today's log. Whoever has acked anything of
// that, be it the welcome, has loaded what he shows after the log was made: the event
// is covered, as it is for his session.
func (d *duty) isAcked(ctx context.Context, user registry.User, p protocol.Pair, id protocol.EventID) (bool, error) {
	switch {
	case p.Seq > 0 && p.Epoch != user.Epoch:
		return user.HasAcked, nil
	case p.Seq > 0:
		return user.Acked >= p.Seq, nil
	case user.Acked == 0:
		return false, nil
	}
	epoch, seq, err := d.registry.Find(ctx, p.User, id)
	return seq > 0 && epoch == user.Epoch && user.Acked >= seq, err
}

func onlyTrouble(err error) error {
	if redisconn.IsTrouble(err) {
		return err
	}
	return nil
}

// bury puts those pairs of an entry aside that were tried for too long: first the
// dead letter, then the marks. What another entry is to notify, or has notified, is
// none of ours.
func (d *duty) bury(ctx context.Context, h *holding, pairs []protocol.Pair) error {
	note := h.note
	note.Item.Pairs = nil
	for _, p := range pairs {
		mark, err := d.streams.TakeMark(ctx, note.Item.Event.ID, p.User, h.id, inbox.Mark{}, d.cfg.MarkAge)
		if err != nil && redisconn.IsTrouble(err) {
			return err
		}
		if err != nil || mark.State == inbox.MarkPending && mark.Entry == h.id {
			note.Item.Pairs = append(note.Item.Pairs, p)
		}
	}
	if len(note.Item.Pairs) == 0 {
		return nil
	}
	if err := d.streams.BuryNotification(ctx, note, "not taken by the sink in time", h.id, h.deliveries); err != nil {
		return err
	}
	for _, p := range note.Item.Pairs {
		_, err := d.streams.FinishMark(ctx, note.Item.Event.ID, p.User, h.id, inbox.MarkDead, d.cfg.MarkAge)
		if err != nil && redisconn.IsTrouble(err) {
			return err
		}
	}
	return nil
}
