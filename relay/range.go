package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lastmile-gateway/lastmile/outbox"
)

// clockSkew is how far the clocks of publishers and relays may differ where a time
// has to stand for a place in commit order.
const clockSkew = time.Minute

// notifyLost hands over again what waited in the notification stream when Redis
// became empty: the events before the place that routing goes back to, from where
// the oldest entry that waited may have been routed. Users who are connected and
// have acked something since are left out. It comes before anything else, and no
// marker is written before its end: who dies inside begins it again.
func (t *tenure) notifyLost(work context.Context, end outbox.Marker) error {
	since := t.checkpoint.NotificationsSince
	if since.IsZero() {
		return nil
	}
	begin, reached := t.lostFrom(since)
	if reached && begin.Position.Compare(end.Position) >= 0 {
		return nil
	}
	t.log.Warn("notifying again what waited when redis was lost",
		"since", since.UTC(), "to", commitTime(end.Position).UTC())
	t.view.set(stateNotifying)
	err := error(outbox.ErrHistoryLost)
	from := since.Add(-t.r.cfg.InboxMaxAge - t.r.cfg.ScanMargin)
	if reached {
		from = t.scanStart(begin)
		err = t.notifyStream(work, begin, end)
	}
	if errors.Is(err, outbox.ErrHistoryLost) {
		err = t.notifyScan(work, from, end)
	}
	if err != nil {
		return fmt.Errorf("notify what was lost: %w", err)
	}
	return nil
}

// lostFrom is the place as far before the newest slot that was written by since as
// an event may have waited in an inbox; false: the slots do not reach since.
func (t *tenure) lostFrom(since time.Time) (outbox.Marker, bool) {
	cp := t.checkpoint
	tick, found := int64(0), false
	for _, slot := range slots(cp) {
		if !slot.Time.After(since) && slot.Tick >= tick {
			tick, found = slot.Tick, true
		}
	}
	return cp.Back(*cp.Marker, cp.Marker.Tick-tick+t.r.cfg.inboxTicks()), found
}

// notifyStream reads the range by the change stream.
func (t *tenure) notifyStream(work context.Context, begin, end outbox.Marker) error {
	ctx, cancel := t.reading(work)
	defer cancel()
	st, err := t.watch(ctx, begin)
	if err != nil {
		return err
	}
	defer closeStream(st)
	for {
		changes, err := st.Next(ctx)
		if err != nil {
			return err
		}
		upTo := 0
		for upTo < len(changes) && changes[upTo].Position.Compare(end.Position) <= 0 {
			upTo++
		}
		if err := t.notifyAgain(work, changes[:upTo]); err != nil {
			return err
		}
		if _, at := st.Place(); upTo < len(changes) || at.Compare(end.Position) >= 0 {
			return nil
		}
	}
}

// notifyScan reads the range by time, where the change stream doesn't reach it.
func (t *tenure) notifyScan(work context.Context, from time.Time, end outbox.Marker) error {
	t.r.metrics.scans.Inc()
	until := commitTime(end.Position).Add(clockSkew)
	return t.scanFrom(work, from, func(work context.Context, changes []outbox.Change) error {
		kept := changes[:0:0]
		for _, c := range changes {
			if c.Event == nil || !c.Event.Time.After(until) {
				kept = append(kept, c)
			}
		}
		return t.notifyAgain(work, kept)
	})
}

func (t *tenure) notifyAgain(work context.Context, changes []outbox.Change) error {
	events, err := t.admit(work, changes, true)
	if err != nil {
		return err
	}
	return t.route(work, events, t.stageNotifyOnly)
}
