package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// version is the format of entries that this package writes, and the only one
// that it reads.
const version = "1"

// ErrBadEntry is returned by Decode and DecodeNotification for an entry that can
// never be handled: no body, unknown version, or not decodable. It belongs to
// the dead letters (ToDead).
var ErrBadEntry = errors.New("bad entry")

// Entry is an entry of an inbox: a batch, or a control.
type Entry struct {
	ID      string // given by Redis, always: ids of two streams can be equal
	Batch   protocol.Batch
	From    protocol.InstanceID // whose inbox it was moved from; empty: routed here
	Attempt int                 // how often it was moved
	// Routed is the time of the first routing. On write the zero time means
	// now, that is: the entry's own id. On read it is never zero.
	Routed  time.Time
	Control *Control // not nil: the entry is a control and has no batch
}

// Redelivered says whether the entry was moved here from another inbox.
func (e Entry) Redelivered() bool { return e.From != "" }

// Control asks the instance to close a user's sessions.
type Control struct {
	Kick   protocol.UserID
	Before time.Time // sessions since before this; ms
}

type controlJSON struct {
	Kick   protocol.UserID `json:"kick"`
	Before int64           `json:"before"`
}

// Raw is an entry as read.
type Raw struct {
	ID         string
	Fields     map[string]string // nil: pending, but the body is gone
	Deliveries int               // how often Redis gave it out; 0: not asked
}

// QueueAppend queues the append of an entry to an instance's inbox, where that
// exists. Read the outcome by Appended.
func QueueAppend(ctx context.Context, p redis.Pipeliner, id protocol.InstanceID, e Entry) *redis.StringCmd {
	return p.XAdd(ctx, &redis.XAddArgs{Stream: Key(id), NoMkStream: true, ID: "*", Values: e.values()})
}

// Appended is the outcome of a queued append: the entry's id; ErrGone if the
// instance has no inbox (or something else has its key); any other error is
// trouble with Redis.
func Appended(cmd *redis.StringCmd) (string, error) {
	id, err := cmd.Result()
	if errors.Is(err, redis.Nil) {
		return "", ErrGone
	}
	return id, gone(err)
}

// Append appends an entry to an instance's inbox and answers its id; ErrGone if
// the instance has none.
func (s *Streams) Append(ctx context.Context, id protocol.InstanceID, e Entry) (string, error) {
	entry, err := Appended(s.rdb.XAdd(ctx, &redis.XAddArgs{Stream: Key(id), NoMkStream: true, ID: "*", Values: e.values()}))
	if err != nil {
		return "", fmt.Errorf("append to inbox %s: %w", id, err)
	}
	return entry, nil
}

func (e Entry) values() []any {
	if e.Control != nil {
		c := controlJSON{Kick: e.Control.Kick, Before: e.Control.Before.UnixMilli()}
		b, err := json.Marshal(c)
		if err != nil {
			panic("inbox: marshal a string and a number: " + err.Error())
		}
		return []any{"v", version, "c", b}
	}
	values := []any{"v", version, "n", e.Batch.Events(), "b", e.Batch.AppendTo(nil)}
	if e.From != "" {
		values = append(values, "from", string(e.From))
	}
	if e.Attempt > 0 {
		values = append(values, "attempt", e.Attempt)
	}
	if !e.Routed.IsZero() {
		values = append(values, "routed", e.Routed.UnixMilli())
	}
	return values
}

// Decode reads an entry. Its errors are ErrBadEntry.
func Decode(r Raw) (Entry, error) {
	e, err := decode(r)
	if err != nil {
		return Entry{}, fmt.Errorf("decode entry %s: %w: %w", r.ID, ErrBadEntry, err)
	}
	return e, nil
}

func decode(r Raw) (Entry, error) {
	if err := checkVersion(r); err != nil {
		return Entry{}, err
	}
	e := Entry{ID: r.ID}
	if c, ok := r.Fields["c"]; ok {
		control, err := decodeControl(c)
		e.Control = control
		if err != nil {
			return e, err
		}
	} else if err := e.decodeBatch(r.Fields); err != nil {
		return e, err
	}
	var err error
	e.Routed, err = routed(r)
	return e, err
}

func checkVersion(r Raw) error {
	if r.Fields == nil {
		return errors.New("the body is gone")
	}
	if v := r.Fields["v"]; v != version {
		return fmt.Errorf("version %.16q is not %s", v, version)
	}
	return nil
}

func decodeControl(s string) (*Control, error) {
	var c controlJSON
	if err := json.Unmarshal([]byte(s), &c); err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	if _, err := protocol.ParseUserID(string(c.Kick)); err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return &Control{Kick: c.Kick, Before: time.UnixMilli(c.Before)}, nil
}

func (e *Entry) decodeBatch(f map[string]string) (err error) {
	if e.Batch, err = protocol.DecodeBatch([]byte(f["b"])); err != nil {
		return err
	}
	if from, ok := f["from"]; ok {
		if e.From, err = protocol.ParseInstanceID(from); err != nil {
			return fmt.Errorf("from: %w", err)
		}
	}
	if attempt, ok := f["attempt"]; ok {
		if e.Attempt, err = strconv.Atoi(attempt); err != nil || e.Attempt < 0 {
			return fmt.Errorf("attempt: %.16q is no count", attempt)
		}
	}
	return nil
}

// routed is the time of the first routing. A time to come is taken for now: one
// foreign entry with an id far in the future makes Redis give later ids to all
// entries behind it, and their age would never grow.
func routed(r Raw) (time.Time, error) {
	t, err := entryTime(r.ID)
	if s, ok := r.Fields["routed"]; ok {
		var ms int64
		if ms, err = strconv.ParseInt(s, 10, 64); err != nil {
			return time.Time{}, fmt.Errorf("routed: %.16q is no time in ms", s)
		}
		t = time.UnixMilli(ms)
	}
	if now := time.Now(); t.After(now) {
		t = now
	}
	return t, err
}
