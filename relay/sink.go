package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// Notice is one pair that is to be notified.
type Notice struct {
	User   protocol.UserID
	Event  *protocol.Envelope
	Reason inbox.Reason
	At     time.Time // when the pair was handed over for notification
}

// ID is the same for every try of one pair: <event id>.<user>. What can't stand in
// an HTTP header unharmed is percent-encoded: %, spaces and all that is not ASCII.
func (n Notice) ID() string {
	b := []byte(n.Event.ID.String() + ".")
	for i := range len(n.User) {
		if c := n.User[i]; c == '%' || c <= ' ' || c >= 0x7f {
			b = fmt.Appendf(b, "%%%02X", c)
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// Sink takes notices to where people are notified. It may be called by many
// goroutines, and more than once with the same notice. A sink that is an io.Closer
// is closed when its notifier ends.
type Sink interface {
	// Send returns nil when the notice is taken: it will not be sent again.
	// ErrSinkDisabled: nothing may be sent any more. A *SinkError says more about a
	// failure. Errors name no payload and no secret.
	Send(ctx context.Context, n Notice) error
	// String names the sink for people; without secrets.
	String() string
}

// ErrSinkDisabled is returned by a sink that its receiver has disabled for good. The
// notifier sends nothing until it is started again.
var ErrSinkDisabled = errors.New("the endpoint is disabled by its receiver")

// SinkError is a failure about which the receiver has said something.
type SinkError struct {
	Status     int           // its answer
	RetryAfter time.Duration // the pause that it asked for; 0: none
}

// Error names the answer.
func (e *SinkError) Error() string { return fmt.Sprintf("answer %d", e.Status) }

// LogSink writes one line a notice to a log: who was not reached by which event, and
// why; nothing of its content. It is for trying things out.
type LogSink struct{ logger *slog.Logger }

// NewLogSink makes one.
func NewLogSink(logger *slog.Logger) *LogSink { return &LogSink{logger: logger} }

// Send logs.
func (s *LogSink) Send(ctx context.Context, n Notice) error {
	s.logger.LogAttrs(ctx, slog.LevelInfo, "not reached",
		slog.String(keyEvent, n.Event.ID.String()),
		slog.String(keyUser, string(n.User)),
		slog.String(keyReason, string(n.Reason)))
	return nil
}

// String is "log".
func (s *LogSink) String() string { return "log" }
