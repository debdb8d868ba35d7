package protocol

import (
	"strconv"
	"time"
)

// Welcome says which position the client has from now on.
type Welcome struct {
	N        int64 // counts the welcomes of this connection, from 1
	Session  SessionID
	User     UserID
	Instance InstanceID
	Position

	// Recovered: Position is the one that the client resumed from, and what it missed follows. Else the
	// application loads, or reloads, what it shows.
	Recovered bool

	PingInterval    time.Duration // a client that got nothing for so long sends a ping
	ReconnectWithin time.Duration // a lost connection is tried again after a random part of it
	MaxFrame        int           // bytes, the largest frame that the client may send
	TokenExpiresAt  time.Time     // zero: not told
}

// AppendTo appends the frame's JSON.
func (w Welcome) AppendTo(dst []byte) []byte {
	dst = append(dst, `{"type":"welcome","n":`...)
	dst = strconv.AppendInt(dst, w.N, 10)
	dst = append(dst, `,"session":`...)
	dst = appendString(dst, string(w.Session))
	dst = append(dst, `,"user":`...)
	dst = appendString(dst, string(w.User))
	dst = append(dst, `,"instance":`...)
	dst = appendString(dst, string(w.Instance))
	dst = append(dst, `,"epoch":`...)
	dst = appendString(dst, string(w.Epoch))
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendInt(dst, int64(w.Seq), 10)
	dst = append(dst, `,"id":"`...)
	dst = w.ID.AppendTo(dst)
	dst = append(dst, `","recovered":`...)
	dst = strconv.AppendBool(dst, w.Recovered)
	dst = append(dst, `,"pingInterval":`...)
	dst = appendMillis(dst, w.PingInterval)
	dst = append(dst, `,"reconnectWithin":`...)
	dst = appendMillis(dst, w.ReconnectWithin)
	dst = append(dst, `,"maxFrame":`...)
	dst = strconv.AppendInt(dst, int64(w.MaxFrame), 10)
	if !w.TokenExpiresAt.IsZero() {
		dst = append(dst, `,"tokenExpiresAt":`...)
		dst = appendTime(dst, w.TokenExpiresAt)
	}
	return append(dst, '}')
}

// Published answers a publish frame: the event is committed to the outbox.
type Published struct {
	Ref string
	ID  EventID
}

// AppendTo appends the frame's JSON.
func (p Published) AppendTo(dst []byte) []byte {
	dst = append(dst, `{"type":"published","ref":`...)
	dst = appendString(dst, p.Ref)
	dst = append(dst, `,"id":"`...)
	dst = p.ID.AppendTo(dst)
	return append(dst, `"}`...)
}

// ErrorFrame says that something asked for was not done; the connection stays.
type ErrorFrame struct {
	Ref     string // "": none
	Code    ErrorCode
	Message string
}

// AppendTo appends the frame's JSON.
func (e ErrorFrame) AppendTo(dst []byte) []byte {
	dst = append(dst, `{"type":"error"`...)
	if e.Ref != "" {
		dst = append(dst, `,"ref":`...)
		dst = appendString(dst, e.Ref)
	}
	dst = append(dst, `,"code":`...)
	dst = appendString(dst, string(e.Code))
	dst = append(dst, `,"message":`...)
	dst = appendString(dst, e.Message)
	return append(dst, '}')
}

// Goaway asks the client to open its next connection after the delay, and to keep this one until that is welcomed.
type Goaway struct {
	ReconnectAfter time.Duration
	Reason         string
}

// AppendTo appends the frame's JSON.
func (g Goaway) AppendTo(dst []byte) []byte {
	dst = append(dst, `{"type":"goaway","reconnectAfter":`...)
	dst = appendMillis(dst, g.ReconnectAfter)
	dst = append(dst, `,"reason":`...)
	dst = appendString(dst, g.Reason)
	return append(dst, '}')
}

// Pong answers a ping.
type Pong struct{}

// AppendTo appends the frame's JSON.
func (Pong) AppendTo(dst []byte) []byte { return append(dst, `{"type":"pong"}`...) }
