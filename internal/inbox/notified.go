package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// MarkState is how far the notification of one pair is.
type MarkState string

// The states of a mark.
const (
	MarkNone    MarkState = ""        // nobody has begun
	MarkPending MarkState = "PENDING" // the holder of the entry Mark.Entry sends, or will
	MarkSent    MarkState = "SENT"    // the sink has it
	MarkDead    MarkState = "DEAD"    // given up, and put aside
)

// Mark is what stands under socket:notified:{<event>.<user>}.
type Mark struct {
	State MarkState
	Entry string // of MarkPending: the entry's id
	text  string // as it stands in Redis
}

const pendingPrefix = "PENDING:"

// NotifiedKey is where the mark of one pair stands.
func NotifiedKey(event protocol.EventID, user protocol.UserID) string {
	return "socket:notified:{" + event.String() + "." + escapeUser(string(user)) + "}"
}

// escapeUser percent-encodes what would end the hash tag early, or hide a key from
// whoever looks for it.
func escapeUser(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c == '%' || c == '{' || c == '}' || c < ' ' || c == 0x7f {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// parseMark reads a mark. What is none of the known ones counts as pending under
// an entry that does not exist: the next one takes it over.
func parseMark(text string) Mark {
	m := Mark{State: MarkState(text), text: text}
	switch m.State {
	case MarkNone, MarkSent, MarkDead:
	default:
		m.State, m.Entry = MarkPending, strings.TrimPrefix(text, pendingPrefix)
	}
	return m
}

// takeScript puts one's own PENDING where there is nothing, one's own, or what was
// judged to be abandoned; and answers what stands there otherwise.
var takeScript = redis.NewScript(`
local now = redis.call('GET', KEYS[1])
if now and now ~= ARGV[1] and (ARGV[3] == '' or now ~= ARGV[3]) then return now end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]`)

// TakeMark makes entry the one whose holder notifies the pair, for the time of
// keep, if nobody has begun, or if that entry is it already, or if the mark still
// is the one judged abandoned (the zero Mark: none was). It answers the mark that stands
// then: pending under entry if it was taken.
func (s *Streams) TakeMark(ctx context.Context, event protocol.EventID, user protocol.UserID, entry string, abandoned Mark, keep time.Duration) (Mark, error) {
	own := pendingPrefix + entry
	text, err := takeScript.Run(ctx, s.rdb, []string{NotifiedKey(event, user)}, own, keep.Milliseconds(), abandoned.text).Text()
	if err != nil {
		return Mark{}, fmt.Errorf("take mark of a notification: %w", err)
	}
	return parseMark(text), nil
}

// finishScript goes on from one's own PENDING only.
var finishScript = redis.NewScript(`
local now = redis.call('GET', KEYS[1])
if now ~= ARGV[1] then return now or '' end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return ARGV[2]`)

// FinishMark moves a mark from pending under entry to sent or dead, for the time of
// keep, and answers the mark that stands then: another one if it was not entry's.
func (s *Streams) FinishMark(ctx context.Context, event protocol.EventID, user protocol.UserID, entry string, end MarkState, keep time.Duration) (Mark, error) {
	text, err := finishScript.Run(ctx, s.rdb, []string{NotifiedKey(event, user)}, pendingPrefix+entry, string(end), keep.Milliseconds()).Text()
	if err != nil {
		return Mark{}, fmt.Errorf("finish mark of a notification: %w", err)
	}
	return parseMark(text), nil
}

// LookMark reads a mark.
func (s *Streams) LookMark(ctx context.Context, event protocol.EventID, user protocol.UserID) (Mark, error) {
	text, err := s.rdb.Get(ctx, NotifiedKey(event, user)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return Mark{}, fmt.Errorf("look at mark of a notification: %w", err)
	}
	return parseMark(text), nil
}
