package protocol

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// timeFormat is RFC 3339 in UTC with the milliseconds that MongoDB keeps.
const timeFormat = "2006-01-02T15:04:05.000Z"

// appendString appends s as a JSON string. Of the characters that JSON allows none is escaped but the
// quote and the backslash: what reads it is a JSON parser, never an HTML page. Invalid UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < ' ':
			dst = appendControl(dst, byte(r))
		case r < utf8.RuneSelf:
			dst = append(dst, s[i])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

func appendControl(dst []byte, c byte) []byte {
	switch c {
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
}

func appendTime(dst []byte, t time.Time) []byte {
	dst = append(dst, '"')
	dst = t.UTC().AppendFormat(dst, timeFormat)
	return append(dst, '"')
}

func appendMillis(dst []byte, d time.Duration) []byte {
	return strconv.AppendInt(dst, d.Milliseconds(), 10)
}
