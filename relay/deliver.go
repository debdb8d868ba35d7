package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

// outgoing is what the second stage sends.
type outgoing struct {
	parcels []*parcel // by instance, in the order of their first leg
	byID    map[protocol.InstanceID]*parcel
	notices []inbox.Notification
	trims   []protocol.UserID
}

// parcel is what one instance gets.
type parcel struct {
	to    protocol.InstanceID
	items []protocol.Item
	legs  []*leg // one a pair, in the items' order
	sends []send
}

// send is one entry of a parcel, and the legs in it.
type send struct {
	cmd  *redis.StringCmd
	legs []*leg
}

// deliver sends legs on: those of connected users to their instances' inboxes, the
// others to notifications.
func (t *tenure) deliver(work context.Context, legs []leg) error {
	out := t.sort(legs)
	p := t.conn.Pipeline()
	for _, parcel := range out.parcels {
		parcel.queue(work, p)
	}
	for _, user := range out.trims {
		t.reg.QueueTrim(work, p, user)
	}
	t.queueNotices(work, p, out.notices)
	if err := t.exec(work, p); err != nil {
		return fmt.Errorf("deliver: %w", err)
	}
	return t.afterDelivery(work, out.parcels)
}

// sort says where each leg goes.
func (t *tenure) sort(legs []leg) *outgoing {
	out := &outgoing{byID: make(map[protocol.InstanceID]*parcel)}
	for i := range legs {
		l := &legs[i]
		if l.routed.Trim && !slices.Contains(out.trims, l.user) {
			out.trims = append(out.trims, l.user)
		}
		switch {
		case l.connected():
			out.send(l)
		case l.fault != nil:
			t.badKey.begin(t.log, "key of a user is of the wrong type, among others perhaps: "+string(l.user), l.fault)
			out.notify(t, l, inbox.Undelivered)
		default:
			out.notify(t, l, inbox.Offline)
		}
	}
	return out
}

// send adds the leg to the parcel of every instance that serves its user, once
// each.
func (o *outgoing) send(l *leg) {
	for i, at := range l.routed.Locations {
		earlier := func(e registry.Location) bool { return e.Instance == at.Instance }
		if slices.ContainsFunc(l.routed.Locations[:i], earlier) {
			continue
		}
		p := o.byID[at.Instance]
		if p == nil {
			p = &parcel{to: at.Instance}
			o.byID[at.Instance] = p
			o.parcels = append(o.parcels, p)
		}
		p.add(l)
	}
}

// add puts the leg's pair to its event's others, which came just before it.
func (p *parcel) add(l *leg) {
	last := len(p.items) - 1
	if last < 0 || p.items[last].Event != l.env {
		p.items = append(p.items, protocol.Item{Event: l.env})
		last++
	}
	p.items[last].Pairs = append(p.items[last].Pairs, l.pair())
	p.legs = append(p.legs, l)
}

// queue queues the parcel's entries. Redis gives their ids: one with a foreign id
// far in the future is then no obstacle.
func (p *parcel) queue(ctx context.Context, pipe redis.Pipeliner) {
	legs := p.legs
	for _, batch := range protocol.Split(p.items) {
		n := batch.Pairs()
		cmd := inbox.QueueAppend(ctx, pipe, p.to, inbox.Entry{Batch: batch})
		p.sends = append(p.sends, send{cmd: cmd, legs: legs[:n]})
		legs = legs[n:]
	}
}

// afterDelivery looks at every entry's own reply. A nil one means that the
// instance is gone: its users are not connected there, and the fields that say so
// go. An error about the inbox' key sends the entry's pairs to notifications.
func (t *tenure) afterDelivery(work context.Context, parcels []*parcel) error {
	var out outgoing
	var missed []*leg
	for _, p := range parcels {
		for _, s := range p.sends {
			err := s.cmd.Err()
			switch {
			case err == nil:
				for _, l := range s.legs {
					l.sent++
				}
				t.r.metrics.pair("inbox", len(s.legs))
			case errors.Is(err, redis.Nil):
				if err := t.forget(work, p.to, s.legs); err != nil {
					return err
				}
				missed = append(missed, s.legs...)
			default:
				t.badKey.begin(t.log, "key of an inbox is of the wrong type, among others perhaps: "+string(p.to), err)
				for _, l := range s.legs {
					out.notify(t, l, inbox.Undelivered)
				}
			}
		}
	}
	for _, l := range missed {
		if l.sent == 0 {
			out.notify(t, l, inbox.Offline)
			l.sent++ // once, however many instances of his are gone
		}
	}
	return t.notify(work, out.notices)
}

// forget removes the fields of users that name an instance which is gone.
func (t *tenure) forget(work context.Context, gone protocol.InstanceID, legs []*leg) error {
	t.r.metrics.gone.Inc()
	for _, l := range legs {
		var fields []registry.Field
		for _, at := range l.routed.Locations {
			if at.Instance == gone {
				fields = append(fields, at.Field)
			}
		}
		ctx, cancel, err := t.lease.bound(work)
		if err != nil {
			return err
		}
		err = t.reg.Leave(ctx, l.user, fields...)
		cancel()
		if err := t.broken(work, err); err != nil {
			return fmt.Errorf("remove stale fields: %w", err)
		}
	}
	return nil
}

// notify adds the leg to the notifications, unless a rule settles it.
func (o *outgoing) notify(t *tenure, l *leg, reason inbox.Reason) {
	if outcome := t.settledBy(l); outcome != "" {
		t.r.metrics.pair(outcome, 1)
		return
	}
	t.r.metrics.pair("notification", 1)
	last := len(o.notices) - 1
	if last < 0 || o.notices[last].Item.Event != l.env || o.notices[last].Reason != reason {
		o.notices = append(o.notices, inbox.Notification{Item: protocol.Item{Event: l.env}, Reason: reason, At: time.Now()})
		last++
	}
	o.notices[last].Item.Pairs = append(o.notices[last].Item.Pairs, l.pair())
}

// settledBy names the rule by which nobody is to be notified of a leg; "": none.
func (t *tenure) settledBy(l *leg) string {
	switch {
	case l.env.Ephemeral:
		return "ephemeral"
	case l.env.SkipNotify:
		return "not_notified"
	case l.env.Expired(time.Now()):
		return "expired"
	case l.routed.Seq > 0 && l.routed.Seq <= l.routed.Acked:
		return "acked" // routed before: he has seen it
	case !t.r.cfg.NotifyEnabled:
		return "notify_disabled"
	}
	return ""
}

func (t *tenure) queueNotices(ctx context.Context, p redis.Pipeliner, notices []inbox.Notification) []*redis.StringCmd {
	var cmds []*redis.StringCmd
	for _, n := range notices {
		cmds = append(cmds, inbox.QueueNotification(ctx, p, n)...)
	}
	return cmds
}

// notify hands over what the delivery found undeliverable, in a pipeline of its
// own, which is rare.
func (t *tenure) notify(work context.Context, notices []inbox.Notification) error {
	p := t.conn.Pipeline()
	t.queueNotices(work, p, notices)
	if err := t.exec(work, p); err != nil {
		return fmt.Errorf("hand to notifications: %w", err)
	}
	return nil
}
