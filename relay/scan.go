package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lastmile-gateway/lastmile/outbox"
)

// scan brings a partition up to date where the change stream can't: a first start,
// lost history, another collection, a server from a backup.
//
// The stream is opened once for its first token, T; the outbox is scanned by time,
// carefully; then T becomes the marker and the stream is opened there, still
// carefully up to what was committed by the scan's end. The marker stays where it
// was until then, so that a successor scans again. Where T is lost when the scan is
// over, serve comes back here with T as the last known place.
func (t *tenure) scan(work context.Context) error {
	t.r.metrics.scans.Inc()
	t.view.set(stateScanning)
	from := time.Time{}
	if t.placed {
		from = t.scanStart(t.marker)
	}
	t.log.Info("scanning the outbox", "from", from.UTC())
	first, err := t.firstPlace(work)
	if err != nil {
		return err
	}
	if err := t.scanFrom(work, from, t.routeCarefully); err != nil {
		return fmt.Errorf("scan outbox: %w", err)
	}
	return t.scanned(work, first)
}

// scanStart is where a scan begins that has to reach everything from a marker on.
func (t *tenure) scanStart(m outbox.Marker) time.Time {
	return commitTime(m.Position).Add(-t.r.cfg.ScanMargin)
}

// firstPlace is where a stream stands that was opened now.
func (t *tenure) firstPlace(work context.Context) (outbox.Marker, error) {
	ctx, cancel := t.reading(work)
	defer cancel()
	collection, err := t.r.store.Collection(ctx)
	if err != nil {
		return outbox.Marker{}, fmt.Errorf("open stream for its first token: %w", err)
	}
	st, err := t.r.store.Watch(ctx, outbox.WatchOptions{Collection: collection, Partition: t.n, Partitions: t.r.cfg.Partitions})
	if err != nil {
		return outbox.Marker{}, fmt.Errorf("open stream for its first token: %w", err)
	}
	defer closeStream(st)
	t.collection = collection
	token, pos := st.Place()
	return outbox.Marker{Token: token, Position: pos}, nil
}

// scanFrom scans; each is called with the context of the work, so that a stop lets
// what is being routed end.
func (t *tenure) scanFrom(work context.Context, from time.Time, each func(context.Context, []outbox.Change) error) error {
	ctx, cancel := t.reading(work)
	defer cancel()
	return t.r.store.Scan(ctx, from, t.n, t.r.cfg.Partitions, func(_ context.Context, changes []outbox.Change) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return each(work, changes)
	})
}

func (t *tenure) routeCarefully(work context.Context, changes []outbox.Change) error {
	events, err := t.admit(work, changes, true)
	if err != nil {
		return err
	}
	return t.route(work, events, t.stageAppend)
}

// scanned makes T the marker. A slot and a copy in MongoDB come first: without them
// nobody could go back behind what is routed next.
func (t *tenure) scanned(work context.Context, first outbox.Marker) error {
	ctx, cancel := t.reading(work)
	defer cancel()
	var err error
	if t.careful, err = t.now(ctx); err != nil {
		return err
	}
	since, err := t.notificationsSince(work)
	if err != nil {
		return err
	}
	t.moved(first.Token, first.Position)
	if err := t.writeSlot(ctx); err != nil {
		return t.notSaved("write slot behind the scan", err)
	}
	if err := t.r.store.SaveMarker(ctx, t.n, t.lease.fence, t.marker, since); err != nil {
		return t.notSaved("write checkpoint behind the scan", err)
	}
	t.placed = true
	return t.mark(work)
}

// watch opens the stream at a marker.
func (t *tenure) watch(ctx context.Context, at outbox.Marker) (Stream, error) {
	st, err := t.r.store.Watch(ctx, outbox.WatchOptions{
		After: at.Token, At: at.Position.Timestamp, Index: at.Position.Index,
		Collection: t.collection, Partition: t.n, Partitions: t.r.cfg.Partitions,
	})
	if err != nil {
		return nil, fmt.Errorf("open stream: %w", err)
	}
	return st, nil
}

func closeStream(st Stream) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = st.Close(ctx) // the server forgets an open cursor by itself
}

// isHistoryLost says that only a scan can go on.
func isHistoryLost(err error) bool {
	return errors.Is(err, outbox.ErrHistoryLost) || errors.Is(err, outbox.ErrOtherCollection)
}
