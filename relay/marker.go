package relay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/outbox"
)

// formatPosition writes a position for a person to read: seconds, ordinal, index.
func formatPosition(p outbox.Position) string {
	return fmt.Sprintf("%d.%d.%d", p.T, p.I, p.Index)
}

func parsePosition(s string) (outbox.Position, bool) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return outbox.Position{}, false
	}
	var v [3]uint32
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return outbox.Position{}, false
		}
		v[i] = uint32(n)
	}
	return outbox.Position{Timestamp: outbox.Timestamp{T: v[0], I: v[1]}, Index: v[2]}, true
}

// parseMarker reads what the take script answered. What is no marker is none: the
// checkpoint in MongoDB takes its place.
func parseMarker(token, position, tick any) *outbox.Marker {
	pos, ok := parsePosition(asString(position))
	n, err := strconv.ParseInt(asString(tick), 10, 64)
	if !ok || err != nil {
		return nil
	}
	return &outbox.Marker{Token: outbox.Token(asString(token)), Position: pos, Tick: n}
}

func asString(v any) string {
	s, _ := v.(string)
	return s
}

// commitTime is the wall clock of a position, by the second.
func commitTime(p outbox.Position) time.Time { return time.Unix(int64(p.T), 0) }

// moved notes that everything up to the place is routed and every reply was good.
func (t *tenure) moved(token outbox.Token, pos outbox.Position) {
	if len(token) == 0 && pos.IsZero() {
		return
	}
	t.marker.Token, t.marker.Position = token, pos
	t.dirty = true
}

// queueMarker puts the marker of the batch before into a pipeline of the next one.
func (t *tenure) queueMarker(ctx context.Context, p redis.Pipeliner) *redis.Cmd {
	if !t.dirty {
		return nil
	}
	t.dirty = false
	return t.lease.queueMark(ctx, p, t.marker)
}

// mark writes the marker alone.
func (t *tenure) mark(ctx context.Context) error {
	p := t.conn.Pipeline()
	cmd := t.lease.queueMark(ctx, p, t.marker)
	if err := t.exec(ctx, p); err != nil {
		return err
	}
	t.dirty = false
	return marked(cmd)
}

// markIfDirty is what an idle moment does.
func (t *tenure) markIfDirty(ctx context.Context) error {
	if !t.dirty {
		return nil
	}
	return t.mark(ctx)
}

// round happens once a second: it reads since when notifications wait, over this
// partition's own connection; writes the marker, which says whether the partition
// is still ours; and only then copies both to MongoDB.
func (t *tenure) round(ctx context.Context) error {
	since, err := t.notificationsSince(ctx)
	if err != nil {
		return err
	}
	if err := t.mark(ctx); err != nil {
		return err
	}
	if err := t.tickIfDue(ctx); err != nil {
		return err
	}
	return t.copyMarker(ctx, since)
}

// notificationsSince is when the oldest waiting notification arrived, or now. Now is
// read first: what arrives in between is younger.
func (t *tenure) notificationsSince(ctx context.Context) (time.Time, error) {
	now := time.Now()
	bound, cancel, err := t.lease.bound(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer cancel()
	oldest, err := t.streams.OldestNotification(bound, t.conn)
	if err := t.broken(ctx, err); err != nil {
		return time.Time{}, fmt.Errorf("read oldest notification: %w", err)
	}
	if err != nil || oldest.IsZero() {
		return now, nil // none waits, or the key is no stream: nothing that could be notified again
	}
	return oldest, nil
}

// copyTimeout bounds a write of a checkpoint: routing goes on meanwhile only if
// MongoDB does, so a write that hangs is given up and done again with the next.
const copyTimeout = 2 * time.Second

// copyMarker copies the marker to MongoDB. Trouble there is no fault of the
// partition: the copy is older by a round.
func (t *tenure) copyMarker(ctx context.Context, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	err := t.r.store.SaveMarker(ctx, t.n, t.lease.fence, t.marker, since)
	return t.saved("copy marker", err)
}

// tickIfDue writes the next slot. The tick counts only once it is written.
func (t *tenure) tickIfDue(ctx context.Context) error {
	if time.Since(t.ticked) < t.r.cfg.Tick {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	err := t.writeSlot(ctx)
	return t.saved("write slot", err)
}

// writeSlot writes a slot at the marker's place and moves the tick on.
func (t *tenure) writeSlot(ctx context.Context) error {
	next := t.marker
	next.Tick = t.tick + 1
	slot := outbox.Slot{Marker: next, Time: time.Now()}
	if err := t.r.store.SaveSlot(ctx, t.n, t.lease.fence, slot); err != nil {
		return err
	}
	t.tick, t.marker.Tick = next.Tick, next.Tick
	t.ticked = time.Now()
	t.dirty = true
	return nil
}

// saved judges a write of the checkpoint: fenced ends the tenure, anything else is
// tried again with the next round.
func (t *tenure) saved(what string, err error) error {
	switch {
	case err == nil:
		t.r.metrics.checkpoints.WithLabelValues("written").Inc()
		t.mongoTrouble.end(t.log, what)
		return nil
	case errors.Is(err, outbox.ErrFenced):
		return fmt.Errorf("%s: %w", what, errFenced)
	default:
		t.r.metrics.checkpoints.WithLabelValues("failed").Inc()
		t.mongoTrouble.begin(t.log, what, err)
		return nil
	}
}
