package registry

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// ErrBreak says that a session's view of its user's log and the log itself
// contradict each other: another epoch, another id at the seq that the session
// has reached, or events between the two that the log no longer has. Gap returns
// it. The session breaks the epoch and connects again.
var ErrBreak = errors.New("the log is not the one that the session has seen")

// Config of a Registry. The zero value is ready to use.
type Config struct {
	// ReplayWindow is how long a user's keys outlive the last refresh of a
	// session of his. Default 10 min; it must exceed the sessions' refresh
	// interval many times.
	ReplayWindow time.Duration
	// TokenMaxAge is how long a revocation is remembered: the longest life of a
	// token. Default 24 h.
	TokenMaxAge time.Duration
	// BreakPause is how long after a break a connect makes no other for the same
	// user. Default 10 s; negative: no pause.
	BreakPause time.Duration
	// MaxLog is the number of elements past which a log is trimmed, to TrimLog.
	// Defaults: the limits of the protocol.
	MaxLog, TrimLog int
}

func (c Config) withDefaults() Config {
	if c.ReplayWindow <= 0 {
		c.ReplayWindow = 10 * time.Minute
	}
	if c.TokenMaxAge <= 0 {
		c.TokenMaxAge = 24 * time.Hour
	}
	if c.BreakPause == 0 {
		c.BreakPause = 10 * time.Second
	}
	c.BreakPause = max(c.BreakPause, 0)
	if c.MaxLog <= 0 {
		c.MaxLog = protocol.MaxLog
	}
	if c.TrimLog <= 0 || c.TrimLog > c.MaxLog {
		c.TrimLog = min(protocol.TrimLog, c.MaxLog)
	}
	return c
}

// Registry knows where each user is connected, and each user's log. It holds no
// state of its own: all of it is in Redis. It may be used by many goroutines.
type Registry struct {
	rdb redis.UniversalClient
	cfg Config
}

// New makes a Registry on rdb, a pool for the commands of many goroutines.
func New(rdb redis.UniversalClient, cfg Config) *Registry {
	return &Registry{rdb: rdb, cfg: cfg.withDefaults()}
}

// keys are the keys of one user. All have the hash tag {uid}, so that a script or
// a transaction on them works in a cluster too.
type keys struct{ at, log, revoked string }

func keysOf(u protocol.UserID) keys {
	tag := "user:{" + escape(string(u)) + "}"
	return keys{at: tag + ":at", log: tag + ":log", revoked: tag + ":revoked"}
}

// escape percent-encodes what would end the hash tag early, or hide a key from
// whoever looks for it.
func escape(s string) string {
	clean := true
	for i := range len(s) {
		clean = clean && !mustEscape(s[i])
	}
	if clean {
		return s
	}
	out := make([]byte, 0, len(s)+8)
	for i := range len(s) {
		if mustEscape(s[i]) {
			out = fmt.Appendf(out, "%%%02X", s[i])
		} else {
			out = append(out, s[i])
		}
	}
	return string(out)
}

func mustEscape(c byte) bool {
	return c == '%' || c == '{' || c == '}' || c < ' ' || c == 0x7f
}
