package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

// A stage's pipeline takes so many recipients: enough that the round trip is
// nothing, few enough that Redis serves others in between, and that the lease's
// renewal, which waits behind it, is not late.
const (
	widthFirst = 64
	widthLeast = 16
	widthMost  = 2000
)

// leg is one recipient of one event.
type leg struct {
	*routable
	user   protocol.UserID
	cmd    *registry.RouteCmd
	routed registry.Routed
	fault  error // what Redis said about a key of this recipient, or of his instance's
	sent   int   // inboxes that took it
}

func (l *leg) pair() protocol.Pair {
	return protocol.Pair{User: l.user, Epoch: l.routed.Epoch, Seq: l.routed.Seq}
}

// connected says whether the leg goes to inboxes: a seq-less one only if it was
// meant to have none.
func (l *leg) connected() bool {
	return l.fault == nil && len(l.routed.Locations) > 0 && (l.routed.Seq > 0 || l.env.Ephemeral)
}

// stage takes legs to where they go.
type stage func(work context.Context, legs []leg) error

// route takes events to their recipients in commit order, as many recipients at a
// time as one pipeline takes. When it returns nil, every pair is in an inbox, in
// the notifications, or settled by rule.
func (t *tenure) route(work context.Context, events []*routable, to stage) error {
	var legs []leg
	for _, e := range events {
		for _, user := range e.to {
			if len(legs) >= t.width {
				if err := t.run(work, legs, to); err != nil {
					return err
				}
				legs = legs[:0]
			}
			legs = append(legs, leg{routable: e, user: user})
		}
	}
	if len(legs) == 0 {
		return nil
	}
	return t.run(work, legs, to)
}

// run runs a stage, and makes the next one wider or narrower by how long it took.
func (t *tenure) run(work context.Context, legs []leg, to stage) error {
	began := time.Now()
	err := to(work, legs)
	switch took, fair := time.Since(began), t.r.cfg.Lease/16; {
	case took > fair:
		t.width = max(t.width/2, widthLeast)
	case took < fair/4 && len(legs) == t.width:
		t.width = min(2*t.width, widthMost)
	}
	return err
}

// stageAppend routes legs: each is appended to its user's log and the user located
// (one pipeline), then every instance gets its batches, and the notifications get
// whom nobody serves (a second).
func (t *tenure) stageAppend(work context.Context, legs []leg) error {
	p := t.conn.Pipeline()
	mark := t.queueMarker(work, p)
	for i := range legs {
		legs[i].cmd = t.queueLeg(work, p, &legs[i])
	}
	if err := t.exec(work, p); err != nil {
		return fmt.Errorf("append to logs: %w", err)
	}
	if mark != nil {
		if err := marked(mark); err != nil {
			return err
		}
	}
	if err := t.readLegs(work, legs); err != nil {
		return err
	}
	return t.deliver(work, legs)
}

// queueLeg queues what gives the leg its seq and its user's locations.
func (t *tenure) queueLeg(work context.Context, p redis.Pipeliner, l *leg) *registry.RouteCmd {
	switch {
	case l.env.Ephemeral:
		return t.reg.QueueLocate(work, p, l.user)
	case l.careful:
		return t.reg.QueueAppendCarefully(work, p, l.user, l.env.ID)
	default:
		return t.reg.QueueAppend(work, p, l.user, l.env.ID)
	}
}

// readLegs reads every leg's own reply. An error about the user's key is the leg's
// fault; any other is Redis trouble.
func (t *tenure) readLegs(work context.Context, legs []leg) error {
	for i := range legs {
		routed, err := legs[i].cmd.Result()
		if redisconn.IsTrouble(err) {
			return t.broken(work, err)
		}
		legs[i].routed, legs[i].fault = routed, err
	}
	return nil
}

// stageNotifyOnly hands legs to notifications without routing them: those whose
// user has no location, or has acked nothing since Redis was empty.
func (t *tenure) stageNotifyOnly(work context.Context, legs []leg) error {
	p := t.conn.Pipeline()
	for i := range legs {
		legs[i].cmd = t.reg.QueueLocate(work, p, legs[i].user)
	}
	if err := t.exec(work, p); err != nil {
		return fmt.Errorf("locate users: %w", err)
	}
	if err := t.readLegs(work, legs); err != nil {
		return err
	}
	var out outgoing
	for i := range legs {
		if l := &legs[i]; len(l.routed.Locations) == 0 || !l.routed.HasAcked {
			out.notify(t, l, inbox.Offline)
		}
	}
	return t.notify(work, out.notices)
}
