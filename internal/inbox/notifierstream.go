package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// OwnNotifications answers up to count of the entries that consumer holds, behind
// the entry `after` ("": from the first), in the order of their ids: what it read
// over a connection that is gone. Fields is nil where the body is gone.
func (s *Streams) OwnNotifications(ctx context.Context, conn redis.UniversalClient, consumer, after string, count int) ([]Raw, error) {
	if after == "" {
		after = "0"
	}
	raws, err := readGroup(ctx, conn, Notifications, NotificationGroup, consumer, after, count, -1)
	if errors.Is(err, ErrGone) {
		raws, err = nil, makeGroup(ctx, conn, Notifications, NotificationGroup)
	}
	if err != nil {
		return nil, fmt.Errorf("read own notifications: %w", err)
	}
	return raws, nil
}

// Claimed is what one ClaimNotifications took.
type Claimed struct {
	Raws []Raw
	// Next is where the next claim goes on; "": it begins again.
	Next string
	// Bodyless says that among the entries taken are some without a body, which
	// this Redis does not name (6.2): OwnNotifications has their ids.
	Bodyless bool
}

// ClaimNotifications gives consumer up to count entries that nobody has renewed
// for minIdle, from start on ("": the first), whoever held them. One call looks at
// a bounded number of entries, so it may answer none and have a Next.
func (s *Streams) ClaimNotifications(ctx context.Context, conn redis.UniversalClient, consumer string, minIdle time.Duration, start string, count int) (Claimed, error) {
	if start == "" {
		start = "0-0"
	}
	// Not the client's own XAutoClaim: it stops at an entry without a body.
	reply, err := conn.Do(ctx, "xautoclaim", Notifications, NotificationGroup, consumer,
		minIdle.Milliseconds(), start, "count", count).Slice()
	if err = gone(err); errors.Is(err, ErrGone) {
		reply, err = []any{"0-0", []any{}}, makeGroup(ctx, conn, Notifications, NotificationGroup)
	}
	if err != nil {
		return Claimed{}, fmt.Errorf("claim notifications: %w", orDone(ctx, err))
	}
	c, err := parseClaimed(reply)
	if err != nil {
		return Claimed{}, fmt.Errorf("claim notifications: %w", err)
	}
	return c, nil
}

// parseClaimed reads XAUTOCLAIM's reply: two parts before Redis 7, with nil for an
// entry whose body is gone; three since, where such entries are let go by the call
// itself.
func parseClaimed(reply []any) (Claimed, error) {
	if len(reply) < 2 {
		return Claimed{}, fmt.Errorf("reply of %d parts", len(reply))
	}
	next, _ := reply[0].(string)
	entries, ok := reply[1].([]any)
	if !ok {
		return Claimed{}, fmt.Errorf("entries are a %T", reply[1])
	}
	var c Claimed
	if next != "0-0" {
		c.Next = next
	}
	for _, e := range entries {
		if e == nil {
			c.Bodyless = true
			continue
		}
		raw, err := parseEntry(e)
		if err != nil {
			return Claimed{}, err
		}
		c.Raws = append(c.Raws, raw)
	}
	return c, nil
}

func parseEntry(e any) (Raw, error) {
	pair, ok := e.([]any)
	if !ok || len(pair) != 2 {
		return Raw{}, fmt.Errorf("entry is a %T", e)
	}
	id, ok := pair[0].(string)
	if !ok {
		return Raw{}, fmt.Errorf("entry's id is a %T", pair[0])
	}
	raw := Raw{ID: id}
	values, ok := pair[1].([]any)
	if !ok {
		return raw, nil // the body is gone
	}
	raw.Fields = make(map[string]string, len(values)/2)
	for i := 0; i+1 < len(values); i += 2 {
		name, _ := values[i].(string)
		raw.Fields[name], _ = values[i+1].(string)
	}
	return raw, nil
}

// idleScript sets the idle time of those of the entries that a consumer still
// holds, and answers the others. A bare XCLAIM would take an entry away from
// whoever claimed it meanwhile. The entries come in order, so that one look at
// what the consumer holds between the first and the last serves all of them:
// its cost is that of the range, not of a search for each.
var idleScript = redis.NewScript(`
local holds = {}
for _, row in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[4], ARGV[#ARGV], 1000000, ARGV[2])) do
  holds[row[1]] = true
end
local claim = {'XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0}
local others = {}
for i = 4, #ARGV do
  if holds[ARGV[i]] then
    claim[#claim + 1] = ARGV[i]
  else
    others[#others + 1] = ARGV[i]
  end
end
if #claim > 5 then
  claim[#claim + 1] = 'IDLE'
  claim[#claim + 1] = ARGV[3]
  claim[#claim + 1] = 'JUSTID'
  redis.call(unpack(claim))
end
return others`)

// idlePage is how many entries one script looks after.
const idlePage = 500

// RenewNotifications keeps entries from being claimed for another while, as far as
// consumer still holds them, and answers those that it doesn't: settled, or claimed
// by somebody else. All of them where the group is missing.
func (s *Streams) RenewNotifications(ctx context.Context, consumer string, ids ...string) (lost []string, err error) {
	return s.setIdle(ctx, consumer, 0, ids)
}

func (s *Streams) setIdle(ctx context.Context, consumer string, idle time.Duration, ids []string) ([]string, error) {
	var others []string
	ids = slices.Clone(ids)
	slices.SortFunc(ids, compareEntries)
	for len(ids) > 0 {
		page := ids[:min(len(ids), idlePage)]
		ids = ids[len(page):]
		args := []any{NotificationGroup, consumer, idle.Milliseconds()}
		for _, id := range page {
			args = append(args, id)
		}
		some, err := idleScript.Run(ctx, s.rdb, []string{Notifications}, args...).StringSlice()
		if isGroupGone(err) {
			some, err = page, nil
		}
		if err != nil {
			return nil, fmt.Errorf("renew %d notifications: %w", len(page), err)
		}
		others = append(others, some...)
	}
	return others, nil
}

// compareEntries orders entry ids, <ms>-<n> each, as Redis does.
func compareEntries(a, b string) int {
	aMS, aN, _ := strings.Cut(a, "-")
	bMS, bN, _ := strings.Cut(b, "-")
	// Decimal numbers without leading zeros: the longer one is the greater one.
	return cmp.Or(cmp.Compare(len(aMS), len(bMS)), strings.Compare(aMS, bMS), cmp.Compare(len(aN), len(bN)), strings.Compare(aN, bN))
}

// isGroupGone knows the answer also in the words that Redis 6 wraps a script's
// errors in, and XINFO's on a key that is missing.
func isGroupGone(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "NOGROUP") || strings.Contains(err.Error(), "ERR no such key"))
}

// returnedIdle is longer than anybody waits before he claims an entry.
const returnedIdle = 24 * time.Hour

// ReturnNotifications lets go of all that consumer holds, so that whoever claims
// next gets it at once.
func (s *Streams) ReturnNotifications(ctx context.Context, consumer string) error {
	start := "-"
	for {
		held, err := s.rdb.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: Notifications, Group: NotificationGroup, Consumer: consumer, Start: start, End: "+", Count: idlePage,
		}).Result()
		if isGroupGone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("return notifications: %w", err)
		}
		ids := make([]string, 0, len(held))
		for _, h := range held {
			ids = append(ids, h.ID)
		}
		if _, err := s.setIdle(ctx, consumer, returnedIdle, ids); err != nil {
			return err
		}
		if len(held) < idlePage {
			return nil
		}
		if start, err = idAfter(ids[len(ids)-1]); err != nil {
			return fmt.Errorf("return notifications: %w", err)
		}
	}
}

// idAfter is the least id behind an entry's.
func idAfter(id string) (string, error) {
	ms, seq, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		return "", fmt.Errorf("parse entry id %q: not <ms>-<n>", id)
	}
	return ms + "-" + strconv.FormatUint(n+1, 10), nil
}

// sweepScript deletes consumers that hold nothing. Deleting one that does would
// lose its pending entries, hence look and deletion in one step.
var sweepScript = redis.NewScript(`
local n = 0
for _, reply in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local c = {}
  for i = 1, #reply, 2 do c[reply[i]] = reply[i + 1] end
  local wanted = c['name'] == ARGV[2] or tonumber(c['idle']) >= tonumber(ARGV[3])
  if wanted and tonumber(c['pending']) == 0 then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], c['name'])
    n = n + 1
  end
end
return n`)

// SweepNotifiers deletes consumers of the notification group that hold nothing:
// the named one ("": none), and those that did nothing for idle. It answers how
// many.
func (s *Streams) SweepNotifiers(ctx context.Context, consumer string, idle time.Duration) (int, error) {
	n, err := sweepScript.Run(ctx, s.rdb, []string{Notifications}, NotificationGroup, consumer, idle.Milliseconds()).Int()
	if isGroupGone(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("sweep notifiers: %w", err)
	}
	return n, nil
}

// HasNotification says whether an entry is still in the stream.
func (s *Streams) HasNotification(ctx context.Context, id string) (bool, error) {
	if _, err := entryTime(id); err != nil {
		return false, nil // nothing that ever was an entry
	}
	entries, err := s.rdb.XRangeN(ctx, Notifications, id, id, 1).Result()
	if err != nil {
		return false, fmt.Errorf("look for notification %s: %w", id, gone(err))
	}
	return len(entries) > 0, nil
}

// BuryNotification puts pairs of an entry aside as an entry of their own, in the
// form in which it can be appended to the stream again: see ToDead.
func (s *Streams) BuryNotification(ctx context.Context, n Notification, reason, origin string, deliveries int) error {
	for _, fields := range n.entries() {
		if err := s.ToDead(ctx, Notifications, reason, origin, deliveries, fields); err != nil {
			return err
		}
	}
	return nil
}

// NotificationBacklog is what waits for notification, and who reads it.
type NotificationBacklog struct {
	Length int64     // entries, those that are held too
	Oldest time.Time // arrival of the oldest; zero: none
	// Idle is how long ago any reader last asked for entries; negative: there is
	// no reader.
	Idle time.Duration
}

// NotificationBacklog looks at the notification stream.
func (s *Streams) NotificationBacklog(ctx context.Context) (NotificationBacklog, error) {
	b := NotificationBacklog{Idle: -1}
	var err error
	if b.Length, err = s.rdb.XLen(ctx, Notifications).Result(); err != nil {
		return b, fmt.Errorf("look at notifications: %w", gone(err))
	}
	if b.Oldest, err = s.OldestNotification(ctx, s.rdb); err != nil {
		return b, err
	}
	readers, err := s.rdb.XInfoConsumers(ctx, Notifications, NotificationGroup).Result()
	if isGroupGone(err) {
		return b, nil
	}
	if err != nil {
		return b, fmt.Errorf("look at readers of notifications: %w", err)
	}
	for _, r := range readers {
		if idle := max(r.Idle, 0); b.Idle < 0 || idle < b.Idle { // an embedded server doesn't know
			b.Idle = idle
		}
	}
	return b, nil
}
