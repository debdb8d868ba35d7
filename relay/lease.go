package relay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

var (
	// errHeld says that another relay holds the partition's lease.
	errHeld = errors.New("partition is held by another relay")
	// errFenced says that the partition was taken by another relay.
	errFenced = errors.New("partition was taken by another relay")
	// errLeaseOver says that by our own clock the lease has ended, or is about to.
	errLeaseOver = errors.New("lease ended by the own clock")
)

// partitionKey is the one key of a partition: its lease, its fence and its marker
// are lost or kept together.
func partitionKey(n int) string { return "relay:partition:{" + strconv.Itoa(n) + "}" }

// Scripts on one partition. Times are Redis' own; %.0f since Lua would write a
// number of milliseconds as 1.7e+12.
const (
	// luaTake: owner, lease in ms, the least fence that was taken elsewhere.
	luaTake = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local h = redis.call('HMGET', KEYS[1], 'owner', 'end', 'fence', 'token', 'position', 'tick')
local left = tonumber(h[2] or '0') - now
if h[1] and h[1] ~= ARGV[1] and left > 0 then return {0, h[1]} end
local fence = math.max(tonumber(h[3] or '0'), tonumber(ARGV[3])) + 1
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'end', string.format('%.0f', now + ARGV[2]), 'fence', string.format('%.0f', fence))
return {fence, h[4] or '', h[5] or '', h[6] or ''}`

	// luaRenew: fence, lease in ms.
	luaRenew = `
if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then return 0 end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('HSET', KEYS[1], 'end', string.format('%.0f', now + ARGV[2]))
return 1`

	// luaMark: fence, token, position, tick.
	luaMark = `
if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'token', ARGV[2], 'position', ARGV[3], 'tick', ARGV[4])
return 1`

	// luaRelease: fence. The fence and the marker stay.
	luaRelease = `
if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'end', '0')
return 1`
)

// lease is one holding of a partition, from its taking to its end. The fence tells
// it from every other one, also of the same owner.
type lease struct {
	// fixed after construction
	key   string
	fence int64
	term  time.Duration
	began time.Time

	until atomic.Int64 // of our own clock, since began; read before each pipeline
}

// takeLease takes the partition, or says [errHeld]. The marker is what Redis holds,
// nil: none.
func takeLease(ctx context.Context, rdb redis.UniversalClient, n int, owner protocol.InstanceID, term time.Duration, above int64) (*lease, *outbox.Marker, error) {
	l := &lease{key: partitionKey(n), term: term, began: time.Now()}
	reply, err := rdb.Eval(ctx, luaTake, []string{l.key}, string(owner), term.Milliseconds(), above).Slice()
	if err != nil {
		return nil, nil, fmt.Errorf("take lease: %w", err)
	}
	if len(reply) == 2 {
		return nil, nil, fmt.Errorf("take lease: %w: %v", errHeld, reply[1])
	}
	if len(reply) != 4 {
		return nil, nil, fmt.Errorf("take lease: a reply of %d values", len(reply))
	}
	l.fence, _ = reply[0].(int64)
	l.confirmed(l.began)
	return l, parseMarker(reply[1], reply[2], reply[3]), nil
}

// confirmed notes that a taking or renewal that was sent at the given moment was
// answered: Redis counts the term from later on, so our clock stops first.
func (l *lease) confirmed(sent time.Time) {
	l.until.Store(int64(sent.Sub(l.began) + l.term))
}

// left is how long work may still begin: a tenth of the term is kept for what is
// under way between the look at the clock and Redis.
func (l *lease) left() time.Duration {
	return time.Duration(l.until.Load()) - time.Since(l.began) - l.term/10
}

// bound gives the context that a pipeline may take: it ends with the lease.
func (l *lease) bound(ctx context.Context) (context.Context, context.CancelFunc, error) {
	left := l.left()
	if left <= 0 {
		return nil, nil, errLeaseOver
	}
	ctx, cancel := context.WithTimeoutCause(ctx, left, errLeaseOver)
	return ctx, cancel, nil
}

func (l *lease) renew(ctx context.Context, rdb redis.UniversalClient) error {
	sent := time.Now()
	ok, err := rdb.Eval(ctx, luaRenew, []string{l.key}, l.fence, l.term.Milliseconds()).Int()
	if err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	if ok == 0 {
		return fmt.Errorf("renew lease: %w", errFenced)
	}
	l.confirmed(sent)
	return nil
}

// release lets another relay take the partition at once.
func (l *lease) release(ctx context.Context, rdb redis.UniversalClient) error {
	if err := rdb.Eval(ctx, luaRelease, []string{l.key}, l.fence).Err(); err != nil {
		return fmt.Errorf("release lease: %w", err)
	}
	return nil
}

// queueMark queues the marker script.
func (l *lease) queueMark(ctx context.Context, p redis.Pipeliner, m outbox.Marker) *redis.Cmd {
	return p.Eval(ctx, luaMark, []string{l.key}, l.fence, []byte(m.Token), formatPosition(m.Position), m.Tick)
}

// marked reads the marker script's reply.
func marked(c *redis.Cmd) error {
	ok, err := c.Int()
	if err != nil {
		return fmt.Errorf("write marker: %w", err)
	}
	if ok == 0 {
		return fmt.Errorf("write marker: %w", errFenced)
	}
	return nil
}
