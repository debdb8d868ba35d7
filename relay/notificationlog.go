package relay

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/redisconn"
)

const (
	logBatch = 100             // entries a read
	logBlock = 2 * time.Second // how long a read waits
)

// NotificationLog reads the notification stream and writes one line a pair to the
// log: who was not reached by which event, and why; nothing of its content. It
// settles what it has logged. It is for trying things out, where nobody is really
// notified: it waits for nobody to come back.
type NotificationLog struct {
	// fixed after construction
	cfg   Config
	redis *redisconn.Server
}

// NewNotificationLog makes one; of the configuration it takes the name, the logger
// and the metrics. It starts nothing.
func NewNotificationLog(cfg Config, redis *redisconn.Server) *NotificationLog {
	return &NotificationLog{cfg: cfg.withDefaults(), redis: redis}
}

// Run logs notifications until ctx ends. Trouble of Redis is waited out.
func (n *NotificationLog) Run(ctx context.Context) error {
	var back backoff
	var bad trouble
	for back.wait(ctx) {
		began := time.Now()
		err := n.read(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > backoffMost {
			back.reset()
			bad = trouble{}
		}
		bad.begin(n.cfg.Logger, "read notifications", err)
	}
	return nil
}

// read follows the stream over one connection, which is closed when ctx ends: a
// blocking read does not end by its context.
func (n *NotificationLog) read(ctx context.Context) error {
	conn := n.redis.Conn(nil)
	defer conn.Close()
	defer inbox.CloseOnDone(ctx, conn)()
	streams := inbox.New(conn, inbox.Config{Logger: n.cfg.Logger, Metrics: n.cfg.Metrics})
	if err := streams.MakeNotifications(ctx); err != nil {
		return err
	}
	if err := n.leftovers(ctx, conn, streams); err != nil {
		return err
	}
	for {
		raws, err := streams.ReadNotifications(ctx, conn, n.cfg.Name, logBatch, logBlock)
		if err != nil {
			return err
		}
		if err := n.settle(ctx, streams, raws); err != nil {
			return err
		}
	}
}

// leftovers settles what this reader took before its connection broke, or before
// its process died: an entry that nobody settles would stay the oldest for ever.
func (n *NotificationLog) leftovers(ctx context.Context, conn redis.UniversalClient, streams *inbox.Streams) error {
	for {
		reply, err := conn.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: inbox.NotificationGroup, Consumer: n.cfg.Name, Streams: []string{inbox.Notifications, "0"}, Count: logBatch, Block: -1,
		}).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		var raws []inbox.Raw
		for _, stream := range reply {
			for _, m := range stream.Messages {
				raws = append(raws, rawOf(m))
			}
		}
		if len(raws) == 0 {
			return nil
		}
		if err := n.settle(ctx, streams, raws); err != nil {
			return err
		}
	}
}

// rawOf keeps a body that is gone as nil.
func rawOf(m redis.XMessage) inbox.Raw {
	raw := inbox.Raw{ID: m.ID}
	for k, v := range m.Values {
		if raw.Fields == nil {
			raw.Fields = make(map[string]string, len(m.Values))
		}
		raw.Fields[k] = asString(v)
	}
	return raw
}

func (n *NotificationLog) settle(ctx context.Context, streams *inbox.Streams, raws []inbox.Raw) error {
	if len(raws) == 0 {
		return nil
	}
	ids := make([]string, 0, len(raws))
	for _, raw := range raws {
		note, err := inbox.DecodeNotification(raw)
		if errors.Is(err, inbox.ErrBadEntry) {
			err = streams.ToDead(ctx, inbox.Notifications, err.Error(), raw.ID, raw.Deliveries, raw.Fields)
		}
		if err != nil {
			return err
		}
		n.log(note)
		ids = append(ids, raw.ID)
	}
	return streams.SettleNotifications(ctx, ids...)
}

func (n *NotificationLog) log(note inbox.Notification) {
	if note.Item.Event == nil {
		return
	}
	for _, pair := range note.Item.Pairs {
		n.cfg.Logger.LogAttrs(context.Background(), slog.LevelInfo, "not reached",
			slog.String(keyEvent, note.Item.Event.ID.String()),
			slog.String(keyUser, string(pair.User)),
			slog.String(keyReason, string(note.Reason)))
	}
}
