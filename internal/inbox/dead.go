package inbox

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// The streams of dead letters.
const (
	Dead             = "socket:dead"              // of inboxes
	DeadNotification = "socket:notification:dead" // of the notification stream
)

// ToDead puts an entry of the named stream (a key) aside, into DeadNotification
// if that is Notifications and into Dead otherwise: its fields each as
// entry.<name>, beside stream, reason, origin (the entry's id), deliveries (how
// often it was given out) and at (ms). The oldest dead letters go when there are
// more than Config.MaxDead. The caller settles the entry afterwards.
func (s *Streams) ToDead(ctx context.Context, stream, reason, origin string, deliveries int, fields map[string]string) error {
	target := Dead
	if stream == Notifications {
		target = DeadNotification
	}
	values := []any{
		"stream", stream, "reason", reason, "origin", origin,
		"deliveries", deliveries, "at", time.Now().UnixMilli(),
	}
	for name, value := range fields {
		values = append(values, "entry."+name, value)
	}
	err := s.rdb.XAdd(ctx, &redis.XAddArgs{Stream: target, ID: "*", MaxLen: s.cfg.MaxDead, Approx: true, Values: values}).Err()
	if err != nil {
		return fmt.Errorf("put entry %s of %s into %s: %w", origin, stream, target, err)
	}
	s.dead.WithLabelValues(target).Inc()
	s.cfg.Logger.WarnContext(ctx, "put an entry aside",
		slog.String("stream", stream), slog.String("entry", origin), slog.String("reason", reason), slog.String("to", target))
	return nil
}
