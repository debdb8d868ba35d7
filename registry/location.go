package registry

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// Field names one session of a user, and the instance that holds it.
type Field struct {
	Instance protocol.InstanceID
	Session  protocol.SessionID
}

// ErrField is what ParseField returns for a text that is no field.
var ErrField = errors.New("bad field: not <instance>/<session>")

// ParseField reads what String gives.
func ParseField(s string) (Field, error) {
	// Neither part can hold a slash; names that begin with @ are the log's own.
	instance, session, ok := strings.Cut(s, "/")
	if !ok || instance == "" || session == "" || instance[0] == '@' {
		return Field{}, ErrField
	}
	return Field{protocol.InstanceID(instance), protocol.SessionID(session)}, nil
}

// String is <instance>/<session>; "" for the zero Field.
func (f Field) String() string {
	if f.IsZero() {
		return ""
	}
	return string(f.Instance) + "/" + string(f.Session)
}

// IsZero says whether f names no session.
func (f Field) IsZero() bool { return f == Field{} }

// Location is a session, since when it is there (to the millisecond), and the
// device it named (at most protocol.MaxDevice bytes are kept).
type Location struct {
	Field
	Since  time.Time
	Device string
}

func (l Location) value() string {
	device := l.Device
	if len(device) > protocol.MaxDevice {
		device = strings.ToValidUTF8(device[:protocol.MaxDevice], "")
	}
	return strconv.FormatInt(l.Since.UnixMilli(), 10) + " " + device
}

// parseLocation never refuses a value: whatever it holds, the session is there.
func parseLocation(f Field, value string) Location {
	since, device, _ := strings.Cut(value, " ")
	ms, err := strconv.ParseInt(since, 10, 64)
	if err != nil {
		return Location{Field: f}
	}
	return Location{Field: f, Since: time.UnixMilli(ms), Device: device}
}
