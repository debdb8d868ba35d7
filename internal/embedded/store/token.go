package store

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// Token is a resume token: a place in the oplog, in the format of a server (4.2
// and later, version 1), so that tokens sort as the places do.
// See src/mongo/db/pipeline/resume_token.h.
type Token struct {
	Time Timestamp
	// Event says that the token names an event; else it is a high-water mark,
	// which stands before every event of its time.
	Event bool
	// Index is the event's index within its transaction.
	Index int
	// Invalidate tells the invalidate event from the drop or rename before it.
	Invalidate bool
	// rest is the collection's UUID and the document's key.
	rest []byte
}

const (
	tokenVersion   = 1
	tokenTypeEvent = 128
)

// String is the value of the token's _data.
func (t Token) String() string {
	b := t.Time.appendKey(make([]byte, 0, 32+len(t.rest)))
	b = appendInt(b, tokenVersion)
	kind := int64(0)
	if t.Event {
		kind = tokenTypeEvent
	}
	b = appendInt(appendInt(b, kind), int64(t.Index))
	b = append(b, pick(t.Invalidate, ctTrue, ctFalse))
	b = append(append(b, t.rest...), keyEnd)
	return upperHex(b)
}

// upperHex: a token may have 12 MB, so it is not made in lower case first.
func upperHex(b []byte) string {
	const digits = "0123456789ABCDEF"
	var s strings.Builder
	s.Grow(2 * len(b))
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String()
}

// HighWaterMark is the place before everything that is written at t or later.
func HighWaterMark(t Timestamp) Token { return Token{Time: t} }

// ParseToken reads the value of _data.
func ParseToken(data string) (Token, error) {
	b, err := hex.DecodeString(data)
	if err != nil {
		return Token{}, Errorf(CodeFailedToParse, "resume token string was not a valid hex string")
	}
	const beginning = 9
	if len(b) == 0 || b[0] != ctTimestamp {
		kind := byte(0)
		if len(b) > 0 {
			kind = b[0]
		}
		return Token{}, Errorf(50811, "KeyString format error: Unknown type: %d", kind)
	}
	if len(b) < beginning {
		return Token{}, badToken()
	}
	t := Token{Time: Timestamp{binary.BigEndian.Uint32(b[1:]), binary.BigEndian.Uint32(b[5:])}}
	return t, t.parseRest(b[beginning:])
}

func (t *Token) parseRest(b []byte) error {
	var fields [3]int64 // version, type, index
	for i := range fields {
		var ok bool
		if fields[i], b, ok = takeInt(b); !ok {
			return badToken()
		}
	}
	if fields[0] != tokenVersion || (fields[1] != 0 && fields[1] != tokenTypeEvent) || len(b) == 0 {
		return badToken()
	}
	if b[0] != ctTrue && b[0] != ctFalse {
		return badToken()
	}
	t.Event, t.Index, t.Invalidate = fields[1] == tokenTypeEvent, int(fields[2]), b[0] == ctTrue
	t.rest = bytes.Clone(bytes.TrimSuffix(b[1:], []byte{keyEnd}))
	return nil
}

func badToken() *Error {
	return Errorf(CodeInvalidResumeToken, "Bad resume token: not of a format that is read here")
}

// takeInt reads a non-negative integer as appendInt wrote it.
func takeInt(b []byte) (int64, []byte, bool) {
	if len(b) == 0 {
		return 0, nil, false
	}
	if b[0] == ctZero {
		return 0, b[1:], true
	}
	n := int(b[0]) - ctPos1 + 1
	if n < 1 || n > 4 || len(b) < 1+n {
		return 0, nil, false
	}
	var v int64
	for _, c := range b[1 : 1+n] {
		v = v<<8 | int64(c)
	}
	return v >> 1, b[1+n:], true
}
