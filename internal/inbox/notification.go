package inbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// The stream of notifications and its group.
const (
	Notifications     = "socket:notification:all"
	NotificationGroup = "notifier"
)

// Reason says why a pair goes to notifications.
type Reason string

// The reasons.
const (
	Offline      Reason = "offline"       // the user had no session when the event was routed
	Undelivered  Reason = "undelivered"   // his sessions did not take it in time
	InstanceDead Reason = "instance_dead" // the instance that held it died
)

// Notification is an entry of the notification stream: an event and those whom
// it has not reached.
type Notification struct {
	Item   protocol.Item
	Reason Reason
	At     time.Time // when it was handed over; ms
}

// QueueNotification queues the appends of a notification, split at 1,000 pairs;
// none without pairs. The stream is made where it is missing. The notification
// is handed over when every command has succeeded.
func QueueNotification(ctx context.Context, p redis.Pipeliner, n Notification) []*redis.StringCmd {
	all := n.entries()
	cmds := make([]*redis.StringCmd, 0, len(all))
	for _, fields := range all {
		cmds = append(cmds, p.XAdd(ctx, &redis.XAddArgs{Stream: Notifications, ID: "*", Values: fields}))
	}
	return cmds
}

// entries are the fields of the entries that the notification takes.
func (n Notification) entries() []map[string]string {
	batches := protocol.Split([]protocol.Item{n.Item})
	all := make([]map[string]string, 0, len(batches))
	for _, b := range batches {
		all = append(all, map[string]string{
			"v": version, "n": strconv.Itoa(b.Pairs()), "b": string(b.AppendTo(nil)),
			"reason": string(n.Reason), "at": strconv.FormatInt(n.At.UnixMilli(), 10),
		})
	}
	return all
}

// DecodeNotification reads an entry of the notification stream. Its errors are
// ErrBadEntry.
func DecodeNotification(r Raw) (Notification, error) {
	n, err := decodeNotification(r)
	if err != nil {
		return Notification{}, fmt.Errorf("decode notification %s: %w: %w", r.ID, ErrBadEntry, err)
	}
	return n, nil
}

func decodeNotification(r Raw) (Notification, error) {
	if err := checkVersion(r); err != nil {
		return Notification{}, err
	}
	batch, err := protocol.DecodeBatch([]byte(r.Fields["b"]))
	if err != nil {
		return Notification{}, err
	}
	if batch.Events() != 1 {
		return Notification{}, fmt.Errorf("%d events instead of one", batch.Events())
	}
	at, err := strconv.ParseInt(r.Fields["at"], 10, 64)
	if err != nil {
		return Notification{}, fmt.Errorf("at: %.16q is no time in ms", r.Fields["at"])
	}
	return Notification{Item: batch.Items[0], Reason: Reason(r.Fields["reason"]), At: time.UnixMilli(at)}, nil
}

// MakeNotifications makes the stream and its group, which begins at the first
// entry. Made already is no error.
func (s *Streams) MakeNotifications(ctx context.Context) error {
	if err := makeGroup(ctx, s.rdb, Notifications, NotificationGroup); err != nil {
		return fmt.Errorf("make notification stream: %w", err)
	}
	return nil
}

// ReadNotifications waits up to block for new entries and answers up to count of
// them; none on timeout, and none after a group that was missing was made again.
// It reads over conn like Read.
func (s *Streams) ReadNotifications(ctx context.Context, conn redis.UniversalClient, consumer string, count int, block time.Duration) ([]Raw, error) {
	raws, err := readGroup(ctx, conn, Notifications, NotificationGroup, consumer, ">", count, block)
	if errors.Is(err, ErrGone) {
		raws, err = nil, makeGroup(ctx, conn, Notifications, NotificationGroup)
	}
	if err != nil {
		return nil, fmt.Errorf("read notifications: %w", err)
	}
	return raws, nil
}

// SettleNotifications acknowledges entries and deletes them, both or neither.
func (s *Streams) SettleNotifications(ctx context.Context, ids ...string) error {
	if err := settle(ctx, s.rdb, Notifications, NotificationGroup, ids); err != nil {
		return fmt.Errorf("settle %d notifications: %w", len(ids), err)
	}
	return nil
}

// OldestNotification is the arrival time of the oldest entry of the notification
// stream, read over rdb; zero: it is empty. The earlier of the entry's `at` and
// its id counts, so that an id far in the future hides nothing.
func (s *Streams) OldestNotification(ctx context.Context, rdb redis.UniversalClient) (time.Time, error) {
	entries, err := rdb.XRangeN(ctx, Notifications, "-", "+", 1).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("look at the oldest notification: %w", gone(err))
	}
	if len(entries) == 0 {
		return time.Time{}, nil
	}
	oldest, err := entryTime(entries[0].ID)
	if err != nil {
		return time.Time{}, fmt.Errorf("look at the oldest notification: %w", err)
	}
	if at, err := strconv.ParseInt(fields(entries[0].Values)["at"], 10, 64); err == nil && at < oldest.UnixMilli() {
		oldest = time.UnixMilli(at)
	}
	return oldest, nil
}
