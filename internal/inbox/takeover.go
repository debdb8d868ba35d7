package inbox

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// Reaper is the consumer under which a reaper takes what a dead instance holds.
// It is not the instance's own one: should the instance wake up and read its
// pending entries once more, before it learns that its lease is lost, it is not
// given what is being moved.
const Reaper = "reaper"

// Taken is one page of a dead instance's pending entries.
type Taken struct {
	Raws []Raw  // Fields is nil where the body is gone
	Lost int    // further ones without a body: Redis has dropped them itself
	Next string // where the next page begins; "": this was the last one
}

// TakeOver takes pending entries of a dead instance's inbox for the reaper,
// whoever holds them and since when: a page of about count, behind the cursor
// ("": from the first). A page may be empty and not the last. ErrGone: there is
// nothing to take, or Regroup has to bring the group back.
func (s *Streams) TakeOver(ctx context.Context, id protocol.InstanceID, cursor string, count int) (Taken, error) {
	if cursor == "" {
		cursor = "0-0"
	}
	c, err := s.claim(ctx, id, Reaper, 0, cursor, count)
	if err != nil {
		return Taken{}, fmt.Errorf("take over inbox %s: %w", id, err)
	}
	taken := Taken{Lost: c.nils + len(c.dropped), Next: c.next}
	if taken.Raws, err = s.Fetch(ctx, id, c.ids...); err != nil {
		return Taken{}, fmt.Errorf("take over inbox %s: %w", id, err)
	}
	return taken, nil
}

// claimPage is one page of XAUTOCLAIM.
type claimPage struct {
	next    string // "": this was the last page
	ids     []string
	nils    int      // without a body, and even without an id
	dropped []string // without a body, and no longer pending
}

func (s *Streams) claim(ctx context.Context, id protocol.InstanceID, consumer string, minIdle time.Duration, cursor string, count int) (claimPage, error) {
	// JUSTID: without it Redis 6.2 answers nil for an entry whose body is gone, and
	// not its id, so that it could never be acknowledged.
	reply, err := s.rdb.Do(ctx, "XAUTOCLAIM", Key(id), Group, consumer, minIdle.Milliseconds(), cursor, "COUNT", count, "JUSTID").Slice()
	if err != nil {
		return claimPage{}, gone(err)
	}
	return parseClaimPage(reply)
}

// parseClaimPage reads XAUTOCLAIM's reply: two parts from Redis 6.2, a third one, the
// ids that it dropped, from 7.0 on.
func parseClaimPage(reply []any) (claimPage, error) {
	if len(reply) < 2 {
		return claimPage{}, fmt.Errorf("a claim's reply of %d parts", len(reply))
	}
	next, isString := reply[0].(string)
	list, isList := reply[1].([]any)
	if !isString || !isList && reply[1] != nil {
		return claimPage{}, fmt.Errorf("a claim's reply of %T and %T", reply[0], reply[1])
	}
	c := claimPage{next: next}
	if next == "0-0" {
		c.next = ""
	}
	c.ids = entryIDs(list)
	c.nils = len(list) - len(c.ids)
	if len(reply) > 2 {
		dropped, _ := reply[2].([]any)
		c.dropped = entryIDs(dropped)
	}
	return c, nil
}

func entryIDs(list []any) []string {
	ids := make([]string, 0, len(list))
	for _, e := range list {
		if id, ok := e.(string); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// TakeUnread takes up to count unread entries of a dead instance's inbox for the
// reaper, and does not wait. ErrGone as for TakeOver.
func (s *Streams) TakeUnread(ctx context.Context, id protocol.InstanceID, count int) ([]Raw, error) {
	raws, err := readGroup(ctx, s.rdb, Key(id), Group, Reaper, ">", count, -1)
	if err != nil {
		return nil, fmt.Errorf("take unread entries of inbox %s: %w", id, err)
	}
	return raws, nil
}

// Regroup brings back the group of an inbox whose entries are left without one;
// all of them are unread then. Unlike Make it never makes the inbox, so that none
// comes back to life: a missing inbox, or what is none, is no error and stays.
func (s *Streams) Regroup(ctx context.Context, id protocol.InstanceID) error {
	err := s.rdb.XGroupCreate(ctx, Key(id), Group, "0").Err()
	if err == nil {
		return nil
	}
	for _, harmless := range []string{"BUSYGROUP", "WRONGTYPE", "ERR The XGROUP subcommand requires the key to exist"} {
		if strings.HasPrefix(err.Error(), harmless) {
			return nil
		}
	}
	return fmt.Errorf("bring back the group of inbox %s: %w", id, err)
}

// Inboxes looks through a part of the keys of Redis for inboxes, and answers whose
// they are, and the cursor of the next part; 0: that was all. Begin at 0. What is
// there all the time from the first call to the last is found, perhaps twice.
func Inboxes(ctx context.Context, rdb redis.UniversalClient, cursor uint64) ([]protocol.InstanceID, uint64, error) {
	keys, next, err := rdb.Scan(ctx, cursor, Key("*"), scanCount).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("look for inboxes: %w", err)
	}
	var ids []protocol.InstanceID
	for _, key := range keys {
		if id, err := protocol.ParseInstanceID(strings.TrimPrefix(key, Key(""))); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, next, nil
}

// scanCount is how many keys Redis looks at in one go: less than a millisecond.
const scanCount = 1000
