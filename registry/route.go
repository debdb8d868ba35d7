package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// Routed is where one event of one user goes.
type Routed struct {
	// Seq is the event's place in the user's log; 0: the user has no log, or the
	// event was not appended (QueueLocate).
	Seq   protocol.Seq
	Epoch protocol.Epoch
	// Acked is the highest seq of Epoch known to be acked.
	Acked protocol.Seq
	// HasAcked says that there is one. It may be 0, of a log that was empty: the user
	// has loaded what he shows since that log was made.
	HasAcked  bool
	Locations []Location
	// Trim: the log is past its bound, and wants QueueTrim.
	Trim bool
}

// RouteCmd is one recipient's part of a pipeline. Read its Result after Exec.
type RouteCmd struct {
	queued []*redis.Cmd // MULTI and what is in it; their errors name the cause when exec is refused
	last   *redis.Cmd   // the one that brings the answer
	read   func(any) (Routed, error)
}

// Result is the answer to this recipient alone, or its error: one about this
// user's keys (WRONGTYPE), or Redis trouble (redisconn.IsTrouble tells).
func (c *RouteCmd) Result() (Routed, error) {
	for _, q := range c.queued {
		if err := q.Err(); err != nil {
			return Routed{}, fmt.Errorf("route to user: %w", err)
		}
	}
	reply, err := c.last.Result()
	if err != nil {
		return Routed{}, fmt.Errorf("route to user: %w", err)
	}
	routed, err := c.read(reply)
	if err != nil {
		return Routed{}, fmt.Errorf("route to user: %w", err)
	}
	return routed, nil
}

// QueueAppend queues the append of id to u's log and the look-up of u's sessions
// as one transaction. Any number of them go in one round trip, each with a result
// of its own. p is a pipeline of one connection (no TxPipeline: transactions
// don't nest; no cluster client: MULTI has no key by which to choose a node).
//
// The append is not idempotent: whose reply is lost must be done again with
// QueueAppendCarefully. The seq holds as long as the connection that gave it.
func (r *Registry) QueueAppend(ctx context.Context, p redis.Pipeliner, u protocol.UserID, id protocol.EventID) *RouteCmd {
	k := keysOf(u)
	// Generic commands, since the replies of queued ones are "QUEUED".
	return &RouteCmd{
		queued: []*redis.Cmd{
			p.Do(ctx, "multi"),
			p.Do(ctx, "rpushx", k.log, id[:]),
			p.Do(ctx, "hgetall", k.at),
		},
		last: p.Do(ctx, "exec"),
		read: r.readAppend,
	}
}

func (r *Registry) readAppend(reply any) (Routed, error) {
	parts, ok := reply.([]any)
	if !ok || len(parts) != 2 {
		return Routed{}, errors.New("transaction answered no pair")
	}
	for _, p := range parts {
		if err, ok := p.(error); ok {
			return Routed{}, err
		}
	}
	h, length := decodeHash(parts[1]), integer(parts[0])
	routed := h.routed()
	if length > 0 && h.epoch != "" {
		routed.Seq = h.base + protocol.Seq(length) - 1
		routed.Trim = length > int64(r.cfg.MaxLog)
	}
	return routed, nil
}

// QueueAppendCarefully queues an append that finds out first whether the log
// holds id already, and then answers its seq there. It trims by itself. Load must
// have been called on the pipeline's connection.
func (r *Registry) QueueAppendCarefully(ctx context.Context, p redis.Pipeliner, u protocol.UserID, id protocol.EventID) *RouteCmd {
	return r.appendCarefully(ctx, p, u, id, appendScript.EvalSha)
}

// AppendCarefully is QueueAppendCarefully for one recipient.
func (r *Registry) AppendCarefully(ctx context.Context, u protocol.UserID, id protocol.EventID) (Routed, error) {
	return r.appendCarefully(ctx, r.rdb, u, id, appendScript.Run).Result()
}

type runScript func(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd

func (r *Registry) appendCarefully(ctx context.Context, c redis.Scripter, u protocol.UserID, id protocol.EventID, run runScript) *RouteCmd {
	k := keysOf(u)
	return &RouteCmd{
		last: run(ctx, c, []string{k.at, k.log}, id[:], r.cfg.MaxLog, r.cfg.TrimLog),
		read: readCareful,
	}
}

func readCareful(reply any) (Routed, error) {
	parts, ok := reply.([]any)
	if !ok || len(parts) != 2 {
		return Routed{}, errors.New("script answered no pair")
	}
	h, index := decodeHash(parts[1]), integer(parts[0])
	routed := h.routed()
	if index >= 0 && h.epoch != "" {
		routed.Seq = h.base + protocol.Seq(index)
	}
	return routed, nil
}

// QueueLocate queues a look-up of u's sessions, and appends nothing: for
// ephemeral events.
func (r *Registry) QueueLocate(ctx context.Context, p redis.Pipeliner, u protocol.UserID) *RouteCmd {
	return &RouteCmd{
		last: p.Do(ctx, "hgetall", keysOf(u).at),
		read: func(reply any) (Routed, error) { return decodeHash(reply).routed(), nil },
	}
}

// QueueTrim queues a trim of u's log, which does nothing if the log is within its
// bound. Load must have been called on the pipeline's connection.
func (r *Registry) QueueTrim(ctx context.Context, p redis.Pipeliner, u protocol.UserID) {
	k := keysOf(u)
	trimScript.EvalSha(ctx, p, []string{k.at, k.log}, r.cfg.MaxLog, r.cfg.TrimLog)
}
