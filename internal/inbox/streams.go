package inbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// Group is the consumer group of every inbox; its only consumer is the instance.
const Group = "socket"

// ErrGone is returned where an inbox, or its group, is missing or of the wrong
// type: its instance was reaped, or Redis lost it. The owner has to fence;
// others count the instance as not there.
var ErrGone = errors.New("stream is gone")

// Streams reads and writes the streams. Its methods may be called at the same
// time.
type Streams struct {
	// fixed after construction
	rdb  redis.UniversalClient
	cfg  Config
	dead *prometheus.CounterVec
}

// New returns the streams in rdb. It does no I/O.
func New(rdb redis.UniversalClient, cfg Config) *Streams {
	return &Streams{
		rdb: rdb,
		cfg: cfg.withDefaults(),
		dead: register(cfg.Metrics, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lastmile_dead_letters_total",
			Help: "Entries put aside because they could not be decoded or handled.",
		}, []string{"stream"})),
	}
}

// Key is the inbox of an instance.
func Key(id protocol.InstanceID) string { return "socket:inbox:" + string(id) }

// Make makes the inbox and its group, which begins at the first entry: what was
// added before the group is read too. Made already is no error.
func (s *Streams) Make(ctx context.Context, id protocol.InstanceID) error {
	if err := makeGroup(ctx, s.rdb, Key(id), Group); err != nil {
		return fmt.Errorf("make inbox %s: %w", id, err)
	}
	return nil
}

func makeGroup(ctx context.Context, rdb redis.UniversalClient, stream, group string) error {
	err := rdb.XGroupCreateMkStream(ctx, stream, group, "0").Err()
	if err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return gone(err)
	}
	return nil
}

// Settle acknowledges entries and deletes them, both or neither.
func (s *Streams) Settle(ctx context.Context, id protocol.InstanceID, entries ...string) error {
	if err := settle(ctx, s.rdb, Key(id), Group, entries); err != nil {
		return fmt.Errorf("settle %d entries of inbox %s: %w", len(entries), id, err)
	}
	return nil
}

func settle(ctx context.Context, rdb redis.UniversalClient, stream, group string, entries []string) error {
	if len(entries) == 0 {
		return nil
	}
	_, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.XAck(ctx, stream, group, entries...)
		p.XDel(ctx, stream, entries...)
		return nil
	})
	return gone(err)
}

// TakeLost gives entries that are pending for minIdle or longer to their own
// consumer again and answers their ids: among them those whose reply was lost.
// Bodies come by Fetch. Dropped are entries that were pending and had no body any
// more: Redis 7 acknowledges those itself when they are claimed, and nothing will
// bring them up again.
func (s *Streams) TakeLost(ctx context.Context, id protocol.InstanceID, minIdle time.Duration) (ids, dropped []string, err error) {
	for start := "0-0"; start != ""; {
		c, err := s.claim(ctx, id, string(id), minIdle, start, 1000)
		if err != nil {
			return nil, nil, fmt.Errorf("take lost entries of inbox %s: %w", id, err)
		}
		ids, dropped, start = append(ids, c.ids...), append(dropped, c.dropped...), c.next
	}
	return ids, dropped, nil
}

// sealScript deletes a stream of which nothing is unread or pending, or what is
// no stream at all, and says whether the key is gone. Entries that are neither
// were acknowledged and not deleted: nothing would ever bring them up again.
var sealScript = redis.NewScript(`
local kind = redis.call('TYPE', KEYS[1])
kind = kind.ok or kind
if kind == 'stream' and redis.call('XLEN', KEYS[1]) > 0 then
  local done = false
  for _, reply in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local group = {}
    for i = 1, #reply, 2 do group[reply[i]] = reply[i + 1] end
    if group['name'] == ARGV[1] then
      local unread = redis.call('XRANGE', KEYS[1], '(' .. group['last-delivered-id'], '+', 'COUNT', 1)
      done = tonumber(group['pending']) == 0 and #unread == 0
    end
  end
  if not done then return 0 end
end
redis.call('DEL', KEYS[1])
return 1`)

// Seal deletes the inbox if no entry in it is unread or pending, and answers
// whether it is gone. From then on an append answers ErrGone, so nothing can slip
// in behind a reaper or a drain. What is no stream is deleted too. Where entries
// are left but their group is missing (ErrGone on reading, and Seal answers
// false), Make brings the group back.
func (s *Streams) Seal(ctx context.Context, id protocol.InstanceID) (bool, error) {
	n, err := sealScript.Run(ctx, s.rdb, []string{Key(id)}, Group).Int()
	if err != nil {
		return false, fmt.Errorf("seal inbox %s: %w", id, err)
	}
	return n == 1, nil
}

// Backlog is what waits in an inbox.
type Backlog struct {
	Length  int64     // entries, pending ones too
	Pending int64     // of these: read and not settled
	Oldest  time.Time // when the oldest entry was added; zero: none
}

// Backlog looks at an inbox; ErrGone if there is none.
func (s *Streams) Backlog(ctx context.Context, id protocol.InstanceID) (Backlog, error) {
	p := s.rdb.Pipeline()
	length := p.XLen(ctx, Key(id))
	pending := p.XPending(ctx, Key(id), Group)
	first := p.XRangeN(ctx, Key(id), "-", "+", 1)
	_, execErr := p.Exec(ctx)
	if err := errors.Join(length.Err(), pending.Err(), first.Err()); err != nil {
		return Backlog{}, fmt.Errorf("look at inbox %s: %w", id, gone(firstError(length.Err(), pending.Err(), first.Err())))
	}
	if execErr != nil {
		return Backlog{}, fmt.Errorf("look at inbox %s: %w", id, execErr)
	}
	b := Backlog{Length: length.Val(), Pending: pending.Val().Count}
	if len(first.Val()) > 0 {
		b.Oldest, _ = entryTime(first.Val()[0].ID)
	}
	return b, nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// gone makes ErrGone of Redis' answers to a command on a stream or group that is
// missing, of the wrong type, or can take no entry any more since one has the
// greatest id there is. UNBLOCKED: deleted under a blocking read, before Redis 7.2.
func gone(err error) error {
	if err == nil {
		return nil
	}
	for _, code := range []string{"NOGROUP", "WRONGTYPE", "UNBLOCKED", "ERR The stream has exhausted"} {
		if strings.HasPrefix(err.Error(), code) {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
	}
	return err
}

// entryTime is the time part of an entry's id.
func entryTime(id string) (time.Time, error) {
	ms, _, ok := strings.Cut(id, "-")
	n, err := strconv.ParseUint(ms, 10, 63)
	if !ok || err != nil {
		return time.Time{}, fmt.Errorf("parse entry id %q: not <ms>-<n>", id)
	}
	return time.UnixMilli(int64(n)), nil
}
