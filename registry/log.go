package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// Gap is what the log holds after the place that a session has reached: the ids
// of sent+1 and on. It returns ErrBreak if the log can't continue the session's
// view: see there.
func (r *Registry) Gap(ctx context.Context, u protocol.UserID, epoch protocol.Epoch, sent protocol.Seq, sentID protocol.EventID) ([]protocol.EventID, error) {
	k := keysOf(u)
	reply, err := gapScript.Run(ctx, r.rdb, []string{k.at, k.log}, string(epoch), int64(sent), sentID[:]).Result()
	if err != nil {
		return nil, fmt.Errorf("read gap: %w", err)
	}
	if _, ok := reply.([]any); !ok {
		return nil, ErrBreak
	}
	return decodeIDs(reply), nil
}

// Holding is what the log says about one id at one seq.
type Holding int

const (
	// HoldsOther says that the log has another epoch, another id there, or ends before.
	HoldsOther Holding = iota
	// HoldsID says that the id is there.
	HoldsID
	// HoldsLater says that the log begins after that seq and can't say.
	HoldsLater
)

// String names the holding.
func (h Holding) String() string { return [...]string{"other", "id", "later"}[h] }

// Holds is one look at the log: does it hold id at seq of this epoch?
func (r *Registry) Holds(ctx context.Context, u protocol.UserID, epoch protocol.Epoch, seq protocol.Seq, id protocol.EventID) (Holding, error) {
	k := keysOf(u)
	n, err := holdsScript.Run(ctx, r.rdb, []string{k.at, k.log}, string(epoch), int64(seq), id[:]).Int()
	if err != nil {
		return HoldsOther, fmt.Errorf("look at log: %w", err)
	}
	if n < 0 || Holding(n) > HoldsLater {
		return HoldsOther, fmt.Errorf("look at log: unknown answer %d", n)
	}
	return Holding(n), nil
}

// Break ends an epoch: the log is empty again under a new one, and what was acked
// in the old one is forgotten; the sessions' fields stay. If somebody broke it
// already, nothing happens. It returns the epoch that holds now; "" where the
// user has no log.
func (r *Registry) Break(ctx context.Context, u protocol.UserID, epoch protocol.Epoch) (protocol.Epoch, error) {
	k := keysOf(u)
	s, err := breakScript.Run(ctx, r.rdb, []string{k.at, k.log},
		string(epoch), string(protocol.NewEpoch()), r.cfg.ReplayWindow.Milliseconds()).Text()
	if err != nil {
		return "", fmt.Errorf("break epoch: %w", err)
	}
	return protocol.Epoch(s), nil
}

// Acked writes down that all up to pos is acked, if the log holds that id there,
// and only upwards. An ack that no longer fits is no error.
func (r *Registry) Acked(ctx context.Context, u protocol.UserID, pos protocol.Position) error {
	k := keysOf(u)
	err := ackedScript.Run(ctx, r.rdb, []string{k.at, k.log}, string(pos.Epoch), int64(pos.Seq), pos.ID[:]).Err()
	if err != nil {
		return fmt.Errorf("write acked: %w", err)
	}
	return nil
}

// Find looks id up in u's log. seq is 0 if it is not there; epoch is "" if u has
// no log.
func (r *Registry) Find(ctx context.Context, u protocol.UserID, id protocol.EventID) (epoch protocol.Epoch, seq protocol.Seq, err error) {
	k := keysOf(u)
	var hash *redis.Cmd
	var length, index *redis.IntCmd
	_, err = r.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		hash = p.Do(ctx, "hgetall", k.at)
		length = p.LLen(ctx, k.log)
		index = p.LPos(ctx, k.log, string(id[:]), redis.LPosArgs{})
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", 0, fmt.Errorf("find event in log: %w", err)
	}
	h := decodeHash(hash.Val())
	if h.epoch == "" || length.Val() == 0 {
		return "", 0, nil
	}
	if id.IsZero() || index.Err() != nil {
		return h.epoch, 0, nil
	}
	return h.epoch, h.base + protocol.Seq(index.Val()), nil
}
