package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Fault is one thing that is wrong with an event.
type Fault struct {
	Pointer string // RFC 6901, where in the event: "/to/3"; "": the whole
	Message string // what is wrong there, to follow the pointer in a sentence
}

// ValidationError names every fault of an event, or of an array of events.
// Validate, DecodeEvent, DecodeEvents and the outbox' publishers return it.
type ValidationError struct{ Faults []Fault }

// Error joins all faults.
func (e *ValidationError) Error() string {
	parts := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		parts[i] = strings.TrimSpace(f.Pointer + " " + f.Message)
	}
	return "bad event: " + strings.Join(parts, "; ")
}

// maxFaults bounds an answer: a list of 100,000 bad recipients is as clear after the first few.
const maxFaults = 100

// faults collects; prefix is put before every pointer.
type faults struct {
	prefix string
	list   []Fault
}

func (f *faults) add(pointer, format string, args ...any) {
	if len(f.list) < maxFaults {
		f.list = append(f.list, Fault{f.prefix + pointer, fmt.Sprintf(format, args...)})
	}
}

func (f *faults) has(pointer string) bool {
	for _, fault := range f.list {
		if fault.Pointer == f.prefix+pointer {
			return true
		}
	}
	return false
}

func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	return &ValidationError{f.list}
}

// Validate checks an event against the limits of this package. It answers nil or a *ValidationError
// with every fault (the first 100). An id or a time that Prepare would set may be zero.
func (e *Event) Validate() error {
	var f faults
	e.validate(&f)
	return f.err()
}

// validate adds the faults of e, but none where decoding has found one already.
func (e *Event) validate(f *faults) {
	e.validateTo(f)
	e.validateText(f, "/type", e.Type, 1, MaxType)
	e.validateText(f, "/source", e.Source, 0, MaxSource)
	e.validateText(f, "/subject", e.Subject, 0, MaxSubject)
	e.validateText(f, "/key", e.Key, 0, MaxKey)
	e.validateText(f, "/traceparent", e.Traceparent, 0, MaxTraceparent)
	validateTime(f, "/time", e.Time)
	validateTime(f, "/expiresAt", e.ExpiresAt)
	if !f.has("/data") {
		if fault := dataFault(e.Data); fault != "" {
			f.add("/data", "%s", fault)
		}
	}
}

func (e *Event) validateTo(f *faults) {
	switch n := len(e.To); {
	case f.has("/to"):
	case n == 0:
		f.add("/to", "must name at least one recipient")
	case n > MaxRecipients:
		f.add("/to", "names %d recipients, at most %d are allowed", n, MaxRecipients)
		return
	}
	for i, u := range e.To {
		if len(f.list) >= maxFaults {
			return
		}
		fault := textFault(string(u), 1, MaxUserID)
		if fault == "" {
			continue
		}
		if at := "/to/" + strconv.Itoa(i); !f.has(at) {
			f.add(at, "%s", fault)
		}
	}
}

func (e *Event) validateText(f *faults, at, s string, lo, hi int) {
	if f.has(at) {
		return
	}
	if fault := textFault(s, lo, hi); fault != "" {
		f.add(at, "%s", fault)
	}
}

// validateTime keeps to the years that RFC 3339 can write.
func validateTime(f *faults, at string, t time.Time) {
	if y := t.UTC().Year(); !t.IsZero() && (y < 1 || y > 9999) {
		f.add(at, "is not in the years 1 to 9999")
	}
}

// dataFault says what keeps data from being an event's data; "" if nothing.
func dataFault(data json.RawMessage) string {
	switch {
	case len(data) == 0:
		return "must be a JSON object"
	case !utf8.Valid(data):
		return "is not valid UTF-8"
	case !json.Valid(data):
		return "is not valid JSON"
	case !isObject(bytes.TrimLeft(data, " \t\r\n")):
		return "must be a JSON object"
	}
	if n := compactLen(data); n > MaxData {
		return fmt.Sprintf("is %d bytes long, at most %d are allowed", n, MaxData)
	}
	return contentFault(data)
}

// compactLen is the length of data without the white space between its tokens.
func compactLen(data []byte) int {
	n := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case ' ', '\t', '\r', '\n':
		case '"':
			end := stringEnd(data, i)
			n += end - i
			i = end - 1
		default:
			n++
		}
	}
	return n
}

// contentFault finds what is JSON but can't be a MongoDB document: too deep, a number out of range, a NUL in a name.
func contentFault(data []byte) string {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '{' || c == '[':
			if depth++; depth > MaxDataDepth {
				return fmt.Sprintf("is nested deeper than %d levels", MaxDataDepth)
			}
		case c == '}' || c == ']':
			depth--
		case c == '"':
			end := stringEnd(data, i)
			if isName(data, end) && nulEscape(data[i:end]) {
				return "has a name with a NUL character"
			}
			i = end - 1
		case c == '-' || c >= '0' && c <= '9':
			end := valueEnd(data, i)
			if _, err := strconv.ParseFloat(string(data[i:end]), 64); err != nil {
				return fmt.Sprintf("has a number out of range: %s", clip(string(data[i:end])))
			}
			i = end - 1
		}
	}
	return ""
}

func isName(data []byte, end int) bool {
	i := space(data, end)
	return i < len(data) && data[i] == ':'
}

func nulEscape(raw []byte) bool {
	return bytes.Contains(raw, []byte(`\u0000`)) && strings.ContainsRune(text(raw), 0)
}
