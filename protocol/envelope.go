package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// DefaultSource is what the browser reads as `source` of an event that has none.
const DefaultSource = "lastmile"

// Envelope is an event as it travels from relay to browser: what the hops need to know, and the body
// that the browser gets, marshalled once and spliced from there on. It is not changed once made.
type Envelope struct {
	ID        EventID
	Type      string
	Time      time.Time
	ExpiresAt time.Time // zero: never

	Ephemeral   bool
	SkipNotify  bool
	Traceparent string

	// Body is a CloudEvents JSON object: specversion, id, source, type, time, subject?, data.
	Body []byte
}

// NewEnvelope marshals a valid, prepared event. It fails for an event without an id and for data that is no JSON object.
func NewEnvelope(e *Event) (*Envelope, error) {
	if e.ID.IsZero() {
		return nil, errors.New("make envelope: the event has no id")
	}
	body, err := appendBody(make([]byte, 0, len(e.Data)+len(e.Source)+len(e.Type)+len(e.Subject)+192), e)
	if err != nil {
		return nil, fmt.Errorf("make envelope of %s: %w", e.ID, err)
	}
	return &Envelope{
		ID: e.ID, Type: e.Type, Time: e.Time, ExpiresAt: e.ExpiresAt,
		Ephemeral: e.Ephemeral, SkipNotify: e.SkipNotify, Traceparent: e.Traceparent,
		Body: body,
	}, nil
}

func appendBody(dst []byte, e *Event) ([]byte, error) {
	source := e.Source
	if source == "" {
		source = DefaultSource
	}
	dst = append(dst, `{"specversion":"1.0","id":"`...)
	dst = e.ID.AppendTo(dst)
	dst = append(dst, `","source":`...)
	dst = appendString(dst, source)
	dst = append(dst, `,"type":`...)
	dst = appendString(dst, e.Type)
	dst = append(dst, `,"time":`...)
	dst = appendTime(dst, e.Time)
	if e.Subject != "" {
		dst = append(dst, `,"subject":`...)
		dst = appendString(dst, e.Subject)
	}
	dst = append(dst, `,"data":`...)
	dst, err := appendData(dst, e.Data)
	return append(dst, '}'), err
}

// appendData keeps every token as it was given (1.0 stays 1.0, and a number beyond float64's precision
// its digits) and drops the white space between them.
func appendData(dst []byte, data json.RawMessage) ([]byte, error) {
	if !isObject(bytes.TrimLeft(data, " \t\r\n")) {
		return dst, errors.New("data is not a JSON object")
	}
	out := bytes.NewBuffer(dst)
	if err := json.Compact(out, data); err != nil {
		return dst, fmt.Errorf("compact data: %w", err)
	}
	if !utf8.Valid(data) {
		return bytes.ToValidUTF8(out.Bytes(), []byte("\uFFFD")), nil
	}
	return out.Bytes(), nil
}

// Expired says whether the event is no longer to be delivered at now: past its ExpiresAt, or
// ephemeral and older than EphemeralLife.
func (v *Envelope) Expired(now time.Time) bool {
	if v.Ephemeral && now.Sub(v.Time) >= EphemeralLife {
		return true
	}
	return !v.ExpiresAt.IsZero() && !now.Before(v.ExpiresAt)
}

// Clone copies v and all that it points to. An envelope out of DecodeBatch shares memory with its whole
// batch: who keeps it for long (a cache) keeps a clone.
func (v *Envelope) Clone() *Envelope {
	c := *v
	c.Type, c.Traceparent = strings.Clone(v.Type), strings.Clone(v.Traceparent)
	c.Body = slices.Clone(v.Body)
	return &c
}
