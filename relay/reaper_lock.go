package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// errOthers says that another relay's reaper is at work on the instance, or may have
// been while our lock was over.
var errOthers = errors.New("another relay is at work on it")

// reapKey is the lock of one dead instance: which relay's reaper empties its inbox.
func reapKey(id protocol.InstanceID) string { return "socket:reap:" + string(id) }

// Scripts on the lock. It only saves double work: two reapers at once, or one that
// was frozen for longer than its lock, double pairs and lose none.
const (
	// luaLock: relay, time to live in ms, '1' if it is to be taken, '0' if it has to
	// be there: then somebody else may have been at work since it ended. Its own
	// holder may take it again, so that a lost reply locks nobody out.
	luaLock = `
local by = redis.call('GET', KEYS[1])
if (by or ARGV[3] == '0') and by ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`

	// luaUnlock: relay.
	luaUnlock = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`
)

// reapLock is held by one reaper while it empties an inbox.
type reapLock struct {
	// fixed after construction
	key string
	by  protocol.InstanceID
	ttl time.Duration

	renewed time.Time // zero: not taken yet
}

// hold takes the lock, or renews it when a third of its time is over; [errOthers].
func (l *reapLock) hold(ctx context.Context, rdb redis.UniversalClient) error {
	now := time.Now()
	if now.Sub(l.renewed) < l.ttl/3 {
		return nil
	}
	ok, err := rdb.Eval(ctx, luaLock, []string{l.key}, string(l.by), l.ttl.Milliseconds(), l.renewed.IsZero()).Int()
	if err != nil {
		return fmt.Errorf("lock dead instance: %w", err)
	}
	if ok == 0 {
		return errOthers
	}
	l.renewed = now
	return nil
}

// release lets others go on at once with what is left.
func (l *reapLock) release(ctx context.Context, rdb redis.UniversalClient) error {
	if err := rdb.Eval(ctx, luaUnlock, []string{l.key}, string(l.by)).Err(); err != nil {
		return fmt.Errorf("unlock dead instance: %w", err)
	}
	return nil
}
