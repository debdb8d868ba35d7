package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// User is what the registry knows of a user at one moment.
type User struct {
	// Known says that he has a log: then Epoch, Base and End are set.
	Known bool
	Epoch protocol.Epoch
	// Base and End are the seqs of the log's first and last element.
	Base, End protocol.Seq
	// Acked is the highest seq of Epoch known to be acked, which may be 0.
	Acked protocol.Seq
	// HasAcked says that there is one.
	HasAcked  bool
	Locations []Location
	// Revoked: tokens issued before are refused. Zero: none.
	Revoked time.Time
}

// Lookup reads what there is about u, and changes nothing.
func (r *Registry) Lookup(ctx context.Context, u protocol.UserID) (User, error) {
	k := keysOf(u)
	var hash *redis.Cmd
	var length *redis.IntCmd
	var revoked *redis.SliceCmd
	_, err := r.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		hash = p.Do(ctx, "hgetall", k.at)
		length = p.LLen(ctx, k.log)
		revoked = p.MGet(ctx, k.revoked) // unlike GET, a missing key is no error of the transaction
		return nil
	})
	if err != nil {
		return User{}, fmt.Errorf("look up user: %w", err)
	}
	h := decodeHash(hash.Val())
	user := User{Locations: h.locations, Revoked: decodeMillis(revoked.Val()[0])}
	if h.epoch != "" && length.Val() > 0 {
		user.Known, user.Epoch, user.Acked, user.HasAcked = true, h.epoch, h.acked, h.hasAcked
		user.Base, user.End = h.base, h.base+protocol.Seq(length.Val())-1
	}
	return user, nil
}

// Revoke refuses u's tokens that were issued before this time, from the next
// connect or refresh on. An earlier time than the one that holds changes nothing.
func (r *Registry) Revoke(ctx context.Context, u protocol.UserID, before time.Time) error {
	err := revokeScript.Run(ctx, r.rdb, []string{keysOf(u).revoked},
		before.UnixMilli(), r.cfg.TokenMaxAge.Milliseconds()).Err()
	if err != nil {
		return fmt.Errorf("revoke tokens: %w", err)
	}
	return nil
}
