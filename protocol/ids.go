package protocol

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// UserID names a recipient: 1 to MaxUserID bytes of UTF-8 without control characters.
type UserID string

// InstanceID names one life of a process: "<name>-<12 characters of a–z0–9>". Every start and every re-home has a new one.
type InstanceID string

// SessionID names one session of an instance: 12 characters of a–z0–9.
type SessionID string

// Epoch names one life of a user's log: 16 characters of a–z0–9. A Seq means nothing outside its Epoch.
type Epoch string

// Seq is an event's place in its recipient's log, from 1 on and below MaxSeq; 0 is none.
type Seq int64

// EventID is an event's id, a UUID. The zero value is the sentinel of a user's log, and the position
// of a client that has handled nothing yet; its text is the empty string.
type EventID [16]byte

// Position is a client's position in its user's log: the last event that its application has handled.
type Position struct {
	Epoch Epoch   `json:"epoch"`
	Seq   Seq     `json:"seq"`
	ID    EventID `json:"id"`
}

// Errors of the parsers; what they return wraps one of these with the offending part.
var (
	ErrUserID     = errors.New("bad user id")
	ErrInstanceID = errors.New("bad instance id")
	ErrSessionID  = errors.New("bad session id")
	ErrEpoch      = errors.New("bad epoch")
	ErrEventID    = errors.New("bad event id")
)

const (
	alphabet       = "abcdefghijklmnopqrstuvwxyz0123456789"
	instanceSuffix = 12
	sessionLength  = 12
	epochLength    = 16
)

// ParseUserID checks s against the form of a UserID. It returns an error wrapping ErrUserID.
func ParseUserID(s string) (UserID, error) {
	if fault := textFault(s, 1, MaxUserID); fault != "" {
		return "", fmt.Errorf("%w: %s", ErrUserID, fault)
	}
	return UserID(s), nil
}

// ParseInstanceName checks the name of a process, the part of an InstanceID that stays the same over
// its restarts: 1 to 64 of A–Z a–z 0–9 . _ : -
func ParseInstanceName(s string) (string, error) {
	if len(s) < 1 || len(s) > MaxInstanceName {
		return "", fmt.Errorf("%w: a name has 1 to %d characters, not %d", ErrInstanceID, MaxInstanceName, len(s))
	}
	for i := range len(s) {
		if !isAlnum(s[i]) && !strings.ContainsRune("._:-", rune(s[i])) {
			return "", fmt.Errorf("%w: a name has only A–Z a–z 0–9 . _ : -, not %q", ErrInstanceID, s[i])
		}
	}
	return s, nil
}

// NewInstanceID makes an id for a new life of the process called name, which must have passed ParseInstanceName.
func NewInstanceID(name string) InstanceID { return InstanceID(name + "-" + random(instanceSuffix)) }

// ParseInstanceID checks s against the form of an InstanceID. It returns an error wrapping ErrInstanceID.
func ParseInstanceID(s string) (InstanceID, error) {
	name, suffix, ok := cutSuffix(s)
	if !ok || !isRandom(suffix, instanceSuffix) {
		return "", fmt.Errorf("%w: %q does not end in - and %d characters of a–z0–9", ErrInstanceID, clip(s), instanceSuffix)
	}
	if _, err := ParseInstanceName(name); err != nil {
		return "", err
	}
	return InstanceID(s), nil
}

// Name is the part that all lives of one process have in common; "" if id has no such form.
func (id InstanceID) Name() string {
	name, _, _ := cutSuffix(string(id))
	return name
}

func cutSuffix(s string) (name, suffix string, ok bool) {
	at := len(s) - instanceSuffix - 1
	if at < 1 || s[at] != '-' {
		return "", "", false
	}
	return s[:at], s[at+1:], true
}

// NewSessionID makes a random session id.
func NewSessionID() SessionID { return SessionID(random(sessionLength)) }

// ParseSessionID checks s against the form of a SessionID. It returns an error wrapping ErrSessionID.
func ParseSessionID(s string) (SessionID, error) {
	if !isRandom(s, sessionLength) {
		return "", fmt.Errorf("%w: %q is not %d characters of a–z0–9", ErrSessionID, clip(s), sessionLength)
	}
	return SessionID(s), nil
}

// NewEpoch makes a random epoch.
func NewEpoch() Epoch { return Epoch(random(epochLength)) }

// ParseEpoch checks s against the form of an Epoch. It returns an error wrapping ErrEpoch.
func ParseEpoch(s string) (Epoch, error) {
	if !isRandom(s, epochLength) {
		return "", fmt.Errorf("%w: %q is not %d characters of a–z0–9", ErrEpoch, clip(s), epochLength)
	}
	return Epoch(s), nil
}

// NewEventID makes a UUID of version 7, whose order is roughly that of time.
func NewEventID() EventID { return EventID(uuid.Must(uuid.NewV7())) }

// ParseEventID reads a UUID of any version in its canonical form: lower case, hyphenated. The nil UUID
// is refused, since it is the log's sentinel. It returns an error wrapping ErrEventID.
func ParseEventID(s string) (EventID, error) {
	id, err := uuid.Parse(s)
	switch {
	case err != nil || len(s) != 36:
		return EventID{}, fmt.Errorf("%w: %q is not a hyphenated UUID", ErrEventID, clip(s))
	case strings.ToLower(s) != s:
		return EventID{}, fmt.Errorf("%w: %q is not in lower case", ErrEventID, clip(s))
	case id == uuid.Nil:
		return EventID{}, fmt.Errorf("%w: the nil UUID is reserved", ErrEventID)
	}
	return EventID(id), nil
}

// IsZero says whether id is the sentinel, that is no event's.
func (id EventID) IsZero() bool { return id == EventID{} }

// String is the canonical form of the UUID; "" for the zero id.
func (id EventID) String() string {
	if id.IsZero() {
		return ""
	}
	return uuid.UUID(id).String()
}

// AppendTo appends String to dst.
func (id EventID) AppendTo(dst []byte) []byte {
	if id.IsZero() {
		return dst
	}
	const digits = "0123456789abcdef"
	for i, b := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, digits[b>>4], digits[b&15])
	}
	return dst
}

// MarshalText gives String.
func (id EventID) MarshalText() ([]byte, error) { return id.AppendTo(make([]byte, 0, 36)), nil }

// UnmarshalText reads what MarshalText gives; the empty text is the zero id.
func (id *EventID) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*id = EventID{}
		return nil
	}
	parsed, err := ParseEventID(string(b))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// random draws n characters of the alphabet, each equally likely: bytes past the last whole multiple
// of the alphabet's length are drawn again.
func random(n int) string {
	const fair = 256 - 256%len(alphabet)
	out, buf := make([]byte, 0, n), make([]byte, 2*n)
	for len(out) < n {
		rand.Read(buf) // never fails: crypto/rand ends the process instead
		for _, b := range buf {
			if int(b) < fair && len(out) < n {
				out = append(out, alphabet[int(b)%len(alphabet)])
			}
		}
	}
	return string(out)
}

func isRandom(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf || !isAlnum(s[i]) || s[i] >= 'A' && s[i] <= 'Z' {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// textFault says what keeps s from being a text of lo to hi bytes, valid UTF-8, without control characters; "" if nothing.
func textFault(s string, lo, hi int) string {
	switch {
	case len(s) < lo:
		return "must not be empty"
	case len(s) > hi:
		return fmt.Sprintf("is %d bytes long, at most %d are allowed", len(s), hi)
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.ContainsFunc(s, unicode.IsControl):
		return "contains a control character"
	}
	return ""
}

// clip keeps what a stranger sent short enough for an error message.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
