package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Hello is a client's first frame.
type Hello struct {
	Token  string
	Resume *Position // nil: a fresh session
	Acks   bool      // the client acks what its application has handled; else a completed write counts
	Device string    // "" or a name for people to look at, at most MaxDevice bytes
}

// Ack says that all up to Seq that came after welcome N are handled by the application.
type Ack struct {
	N   int64 // 1 where the client left it out
	Seq Seq
}

// Publish asks for an event to be published.
type Publish struct {
	Ref   string // comes back with the answer
	Event *Event
}

// TokenFrame brings a fresh token for the same user.
type TokenFrame struct{ Token string }

// Ping asks for a pong.
type Ping struct{}

// ErrNotUTF8 is returned by DecodeFrame for bytes that are no UTF-8; the connection is closed with CloseNotUTF8.
var ErrNotUTF8 = errors.New("decode frame: not UTF-8")

// FrameError is returned by DecodeFrame for a frame that is to be answered with an error frame.
type FrameError struct {
	Code    ErrorCode
	Ref     string // of the publish frame, if it had one
	Message string
	Cause   error // a *ValidationError where Code is ErrorBadEvent and the event is at fault; else nil
}

// Error is code and message.
func (e *FrameError) Error() string { return "decode frame: " + string(e.Code) + ": " + e.Message }

// Unwrap gives the cause.
func (e *FrameError) Unwrap() error { return e.Cause }

// Frame is the error frame that answers e.
func (e *FrameError) Frame() ErrorFrame {
	return ErrorFrame{Ref: e.Ref, Code: e.Code, Message: e.Message}
}

// DecodeFrame reads one text frame of a client: *Hello, *Ack, *Publish, *TokenFrame or *Ping. Its errors
// are ErrNotUTF8 and *FrameError. Unknown members are ignored and null counts as absent; the frame does not alias b.
func DecodeFrame(b []byte) (any, error) {
	if !utf8.Valid(b) {
		return nil, ErrNotUTF8
	}
	if !json.Valid(b) {
		return nil, badFrame("is not valid JSON")
	}
	var fields frameFields
	if !members(b, fields.set) {
		return nil, badFrame("must be a JSON object")
	}
	if !isString(fields.typ) {
		return nil, badFrame("/type must be a string")
	}
	switch typ := text(fields.typ); typ {
	case "ack":
		return fields.ack()
	case "ping":
		return &Ping{}, nil
	case "hello":
		return fields.hello()
	case "publish":
		return fields.publish()
	case "token":
		return fields.tokenFrame()
	default:
		return nil, badFrame("/type has no known value: %q", clip(typ))
	}
}

func badFrame(format string, args ...any) *FrameError {
	return &FrameError{Code: ErrorBadFrame, Message: fmt.Sprintf(format, args...)}
}

// frameFields are the raw members that some client frame has.
type frameFields struct {
	typ, token, resume, acks, device, n, seq, ref, event json.RawMessage
}

func (f *frameFields) set(name string, v json.RawMessage) {
	if isNull(v) {
		return
	}
	switch name {
	case "type":
		f.typ = v
	case "token":
		f.token = v
	case "resume":
		f.resume = v
	case "acks":
		f.acks = v
	case "device":
		f.device = v
	case "n":
		f.n = v
	case "seq":
		f.seq = v
	case "ref":
		f.ref = v
	case "event":
		f.event = v
	}
}

func (f *frameFields) hello() (any, error) {
	h := &Hello{}
	var fs faults
	if f.token != nil {
		decodeText(&h.Token, "/token", f.token, &fs)
	}
	if f.acks != nil {
		decodeBool(&h.Acks, "/acks", f.acks, &fs)
	}
	if f.device != nil && decodeText(&h.Device, "/device", f.device, &fs) {
		if fault := textFault(h.Device, 0, MaxDevice); fault != "" {
			fs.add("/device", "%s", fault)
		}
	}
	if f.resume != nil {
		h.Resume = decodeResume(f.resume, &fs)
	}
	if len(fs.list) > 0 {
		return nil, badFrame("%s", fs.first())
	}
	return h, nil
}

func decodeResume(raw json.RawMessage, fs *faults) *Position {
	p, seen := &Position{}, 0
	if !members(raw, func(name string, v json.RawMessage) {
		var s string
		var err error
		switch name {
		case "epoch":
			seen |= 1
			if decodeText(&s, "/resume/epoch", v, fs) {
				p.Epoch, err = ParseEpoch(s)
			}
		case "seq":
			seen |= 2
			p.Seq, err = parseSeq(v)
		case "id":
			seen |= 4
			if decodeText(&s, "/resume/id", v, fs) {
				err = p.ID.UnmarshalText([]byte(s))
			}
		}
		if err != nil {
			fs.add("/resume/"+name, "%s", err)
		}
	}) {
		fs.add("/resume", "must be an object")
	} else if seen != 7 {
		fs.add("/resume", "must have epoch, seq and id")
	}
	return p
}

func (f *frameFields) ack() (any, error) {
	a := &Ack{N: 1}
	var err error
	if f.n != nil {
		if a.N, err = parseInteger(f.n); err != nil {
			return nil, badAck("/n %s", err)
		}
	}
	if f.seq == nil {
		return nil, badAck("/seq is missing")
	}
	if a.Seq, err = parseSeq(f.seq); err != nil {
		return nil, badAck("/seq %s", err)
	}
	return a, nil
}

func badAck(format string, args ...any) *FrameError {
	return &FrameError{Code: ErrorBadAck, Message: fmt.Sprintf(format, args...)}
}

func (f *frameFields) publish() (any, error) {
	p := &Publish{}
	var fs faults
	if f.ref != nil && decodeText(&p.Ref, "/ref", f.ref, &fs) {
		if fault := textFault(p.Ref, 0, MaxRef); fault != "" {
			p.Ref = ""
			fs.add("/ref", "%s", fault)
		}
	}
	if len(fs.list) > 0 {
		return nil, badFrame("%s", fs.first())
	}
	if f.event == nil {
		return nil, &FrameError{Code: ErrorBadEvent, Ref: p.Ref, Message: "/event is missing"}
	}
	fs.prefix = "/event"
	p.Event = decodeEvent(f.event, &fs)
	if err := fs.err(); err != nil {
		return nil, &FrameError{Code: ErrorBadEvent, Ref: p.Ref, Message: fs.first(), Cause: err}
	}
	return p, nil
}

func (f *frameFields) tokenFrame() (any, error) {
	t := &TokenFrame{}
	if f.token == nil || !isString(f.token) {
		return nil, badFrame("/token must be a string")
	}
	t.Token = text(f.token)
	return t, nil
}

// first is what an error frame says: one fault, since a client's developer mends one at a time.
func (f *faults) first() string { return f.list[0].Pointer + " " + f.list[0].Message }

var errInteger = errors.New("must be an integer from 0 to 2^53-1")

func parseSeq(raw json.RawMessage) (Seq, error) {
	n, err := parseInteger(raw)
	return Seq(n), err
}

// parseInteger takes what a browser may write for an integer: digits only.
func parseInteger(raw json.RawMessage) (int64, error) {
	n, err := strconv.ParseUint(string(raw), 10, 53)
	if err != nil {
		return 0, errInteger
	}
	return int64(n), nil
}
