package protocol

import (
	"errors"
	"fmt"
	"strconv"
)

// MarshalJSON writes e as DecodeEvent reads it, for those who publish over HTTP. Hash and Time are not
// part of that form: the publisher's helper sets them. It fails where Data is no JSON object.
func (e *Event) MarshalJSON() ([]byte, error) {
	dst := append(make([]byte, 0, len(e.Data)+256), '{')
	if !e.ID.IsZero() {
		dst = appendMember(dst, "id", e.ID.String())
	}
	dst = appendMember(dst, "type", e.Type)
	dst = appendOptional(dst, "source", e.Source)
	dst = appendOptional(dst, "subject", e.Subject)
	dst = appendOptional(dst, "key", e.Key)
	dst = appendOptional(dst, "traceparent", e.Traceparent)
	if !e.ExpiresAt.IsZero() {
		dst = appendTime(append(dst, `,"expiresAt":`...), e.ExpiresAt)
	}
	if e.Ephemeral {
		dst = strconv.AppendBool(append(dst, `,"ephemeral":`...), true)
	}
	if e.SkipNotify {
		dst = strconv.AppendBool(append(dst, `,"notify":`...), false)
	}
	dst = append(dst, `,"to":[`...)
	for i, u := range e.To {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, string(u))
	}
	dst, err := appendData(append(dst, `],"data":`...), e.Data)
	if err != nil {
		return nil, fmt.Errorf("marshal event: %w", err)
	}
	return append(dst, '}'), nil
}

// UnmarshalJSON is DecodeEvent into e.
func (e *Event) UnmarshalJSON(b []byte) error {
	if e == nil {
		return errors.New("unmarshal event: nil pointer")
	}
	decoded, err := DecodeEvent(b)
	if err != nil {
		return err
	}
	*e = *decoded
	return nil
}

func appendOptional(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return appendMember(dst, name, value)
}

func appendMember(dst []byte, name, value string) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	dst = append(dst, '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	return appendString(dst, value)
}
