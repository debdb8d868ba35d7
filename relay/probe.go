package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// probeUser is the recipient that a probe names, since an event has one. Nothing is
// ever routed to it.
const probeUser protocol.UserID = "lastmile.probe"

// probeTimeout bounds the insert of a probe, and its deletion.
const probeTimeout = 10 * time.Second

// prober inserts a probe into the outbox every now and then and waits for it on the
// partition's own stream: the one way to know that a stream which brings nothing
// would bring something.
type prober struct {
	// fixed after construction
	p    *partition
	came chan protocol.EventID // of one: the probe that is waited for is back

	reads atomic.Int64 // changes read, whatever they are

	mu      sync.Mutex
	awaited protocol.EventID // zero: none
}

func newProber(p *partition) *prober {
	return &prober{p: p, came: make(chan protocol.EventID, 1)}
}

// watch looks through what was read for the probe that is waited for.
func (b *prober) watch(changes []outbox.Change) {
	b.reads.Add(int64(len(changes)))
	for _, c := range changes {
		if c.Event == nil || c.Event.Type != protocol.ProbeType {
			continue
		}
		b.mu.Lock()
		back := c.Event.ID == b.awaited
		b.mu.Unlock()
		if back {
			select {
			case b.came <- c.Event.ID:
			default:
			}
		}
	}
}

// run probes until ctx ends, or until a probe that was committed does not come back
// on a stream that brings nothing else either: errReopen.
func (b *prober) run(ctx context.Context) error {
	for {
		if err := b.once(ctx); err != nil {
			return err
		}
		if !pauseFor(ctx, b.p.r.cfg.ProbeEvery) {
			return context.Cause(ctx)
		}
	}
}

// once sends one probe. Not being able to commit it makes the relay not ready, but
// says nothing about the stream.
func (b *prober) once(ctx context.Context) error {
	e := b.event()
	b.await(e.ID)
	defer b.await(protocol.EventID{})
	sent := time.Now()
	if err := b.insert(ctx, e); err != nil {
		b.p.view.probed(0, fmt.Errorf("probe: %w", err))
		return nil
	}
	defer b.remove(e.ID)
	for {
		before := b.reads.Load()
		timer := time.NewTimer(b.p.r.cfg.ProbeWithin)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case id := <-b.came:
			timer.Stop()
			if id != e.ID {
				continue // an earlier one, late
			}
			b.back(time.Since(sent))
			return nil
		case <-timer.C:
		}
		b.p.view.probed(time.Since(sent), errReopen)
		if b.reads.Load() == before {
			b.p.r.metrics.reopened.Inc()
			return errReopen
		}
		// The stream moves, it is only behind: opening it anew would not help.
	}
}

func (b *prober) back(after time.Duration) {
	b.p.view.probed(after, nil)
	b.p.r.metrics.probe.Observe(after.Seconds())
}

func (b *prober) await(id protocol.EventID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awaited = id
}

// event is a probe that falls to this partition.
func (b *prober) event() *protocol.Event {
	hash := int32(b.p.n)
	return &protocol.Event{
		ID: protocol.NewEventID(), To: []protocol.UserID{probeUser}, Type: protocol.ProbeType,
		Data: json.RawMessage("{}"), Hash: &hash, Time: time.Now(), Ephemeral: true, SkipNotify: true,
	}
}

func (b *prober) insert(ctx context.Context, e *protocol.Event) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return b.p.r.store.Publish(ctx, e)
}

// remove deletes the probe. One that stays goes with the retention.
func (b *prober) remove(id protocol.EventID) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // also when the relay stops
	defer cancel()
	if err := b.p.r.store.Remove(ctx, id); err != nil {
		b.p.log.Debug("probe was not deleted", keyError, err)
	}
}
