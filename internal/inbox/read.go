package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// CloseOnDone closes conn when ctx ends, unless stop was called before. It is
// how a blocking Read is ended: cancelling a context does not interrupt a read
// that go-redis has under way, closing its connection does.
func CloseOnDone(ctx context.Context, conn redis.UniversalClient) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = conn.Close() })
}

// Read waits up to block for new entries of the instance's own inbox and answers
// up to count of them; none on timeout. It reads over conn, which it holds
// meanwhile; block ≤ 0 does not wait at all. ErrGone: fence. When ctx has ended
// the error Is its error, also if it was conn that was closed.
func (s *Streams) Read(ctx context.Context, conn redis.UniversalClient, id protocol.InstanceID, count int, block time.Duration) ([]Raw, error) {
	raws, err := readGroup(ctx, conn, Key(id), Group, string(id), ">", count, block)
	if err != nil {
		return nil, fmt.Errorf("read inbox %s: %w", id, err)
	}
	return raws, nil
}

// Pending answers up to count of the instance's own pending entries behind the
// entry `after` ("": from the first), in the order of their ids. Fields is nil
// where the body is gone. Each call raises the entries' delivery count.
func (s *Streams) Pending(ctx context.Context, conn redis.UniversalClient, id protocol.InstanceID, after string, count int) ([]Raw, error) {
	if after == "" {
		after = "0"
	}
	raws, err := readGroup(ctx, conn, Key(id), Group, string(id), after, count, -1)
	if err == nil && len(raws) > 0 {
		err = countDeliveries(ctx, conn, id, raws)
	}
	if err != nil {
		return nil, fmt.Errorf("read pending entries of inbox %s: %w", id, err)
	}
	return raws, nil
}

func countDeliveries(ctx context.Context, conn redis.UniversalClient, id protocol.InstanceID, raws []Raw) error {
	details, err := conn.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: Key(id), Group: Group, Consumer: string(id),
		Start: raws[0].ID, End: raws[len(raws)-1].ID, Count: int64(len(raws)),
	}).Result()
	if err != nil {
		return orDone(ctx, gone(err))
	}
	deliveries := make(map[string]int, len(details))
	for _, d := range details {
		deliveries[d.ID] = int(d.RetryCount)
	}
	for i := range raws {
		raws[i].Deliveries = deliveries[raws[i].ID]
	}
	return nil
}

// Fetch reads entries by id, in the order asked for, with their delivery counts.
// Fields is nil where there is no such entry.
func (s *Streams) Fetch(ctx context.Context, id protocol.InstanceID, entries ...string) ([]Raw, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	bodies := make([]*redis.XMessageSliceCmd, len(entries))
	pending := make([]*redis.XPendingExtCmd, len(entries))
	_, execErr := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, entry := range entries {
			bodies[i] = p.XRange(ctx, Key(id), entry, entry)
			pending[i] = p.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: Key(id), Group: Group, Start: entry, End: entry, Count: 1})
		}
		return nil
	})
	raws := make([]Raw, len(entries))
	for i, entry := range entries {
		raws[i].ID = entry
		if err := firstError(bodies[i].Err(), pending[i].Err()); err != nil {
			return nil, fmt.Errorf("fetch entry %s of inbox %s: %w", entry, id, gone(err))
		}
		if m := bodies[i].Val(); len(m) > 0 {
			raws[i].Fields = fields(m[0].Values)
		}
		if d := pending[i].Val(); len(d) > 0 {
			raws[i].Deliveries = int(d[0].RetryCount)
		}
	}
	if execErr != nil {
		return nil, fmt.Errorf("fetch entries of inbox %s: %w", id, execErr)
	}
	return raws, nil
}

// readGroup is one XREADGROUP on one stream, without retry.
func readGroup(ctx context.Context, conn redis.UniversalClient, stream, group, consumer, after string, count int, block time.Duration) ([]Raw, error) {
	switch {
	case block <= 0:
		block = -1 // no BLOCK at all; BLOCK 0 would wait for ever
	case block < time.Millisecond:
		block = time.Millisecond // would be cut to BLOCK 0
	}
	streams, err := conn.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: group, Consumer: consumer, Streams: []string{stream, after}, Count: int64(count), Block: block,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, orDone(ctx, gone(err))
	}
	var raws []Raw
	for _, st := range streams {
		for _, m := range st.Messages {
			raw := Raw{ID: m.ID, Fields: fields(m.Values)}
			if after == ">" {
				raw.Deliveries = 1
			}
			raws = append(raws, raw)
		}
	}
	return raws, nil
}

// orDone puts ctx's error before err if ctx has ended, since err is then most
// likely its consequence.
func orDone(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w (%w)", ctx.Err(), err)
	}
	return err
}

// fields keeps nil as nil: the body is gone.
func fields(values map[string]any) map[string]string {
	if values == nil {
		return nil
	}
	f := make(map[string]string, len(values))
	for k, v := range values {
		f[k], _ = v.(string) // go-redis gives nothing else
	}
	return f
}
