package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// routable is an event on its way to its recipients.
type routable struct {
	env     *protocol.Envelope // marshalled once, for all of them
	to      []protocol.UserID
	careful bool // it may have been routed before
}

// admit makes events of what was read. What is none goes to the dead documents;
// what comes too late is dropped and counted; other partitions' events and probes
// are passed over.
func (t *tenure) admit(work context.Context, changes []outbox.Change, careful bool) ([]*routable, error) {
	events := make([]*routable, 0, len(changes))
	now := time.Now()
	for _, c := range changes {
		if c.Partition != t.n {
			continue
		}
		env, err := envelope(c)
		if err != nil {
			if err := t.bury(work, c, err); err != nil {
				return nil, err
			}
			continue
		}
		if env.Type == protocol.ProbeType || t.late(env, now) {
			continue
		}
		t.r.metrics.events.Inc()
		events = append(events, &routable{
			env: env, to: c.Event.To,
			careful: careful || c.Position.Timestamp.Compare(t.careful) <= 0,
		})
	}
	return events, nil
}

// envelope marshals the event, or says why the document is none.
func envelope(c outbox.Change) (*protocol.Envelope, error) {
	switch {
	case c.Fault != nil:
		return nil, c.Fault
	case c.Event == nil:
		return nil, fmt.Errorf("document is no event")
	case protocol.ReservedType(c.Event.Type) && c.Event.Type != protocol.ProbeType:
		return nil, fmt.Errorf("type %q is reserved", c.Event.Type)
	}
	return protocol.NewEnvelope(c.Event)
}

// late says whether it is too late for an event, and counts it.
func (t *tenure) late(env *protocol.Envelope, now time.Time) bool {
	switch {
	case !env.Expired(now):
		return false
	case env.Ephemeral:
		t.r.metrics.dropped.WithLabelValues("ephemeral_late").Inc()
	default:
		t.r.metrics.dropped.WithLabelValues("expired").Inc()
	}
	return true
}

// bury puts a document away that is no event. MongoDB's trouble is no fault of the
// document: it is tried until it is done, since going on without would lose it.
func (t *tenure) bury(work context.Context, c outbox.Change, fault error) error {
	ctx, cancel := t.reading(work)
	defer cancel()
	var back backoff
	for back.wait(ctx) {
		err := t.r.store.Bury(ctx, c, fault.Error())
		if err == nil {
			t.r.metrics.dead.Inc()
			t.log.Warn("document is no event and was put into the dead ones", keyReason, fault.Error())
			return nil
		}
		t.mongoTrouble.begin(t.log, "bury document", err)
	}
	return context.Cause(ctx)
}
