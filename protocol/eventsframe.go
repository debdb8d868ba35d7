package protocol

import "strconv"

// EventsFrame gathers events for one frame by splicing their bodies; nothing is encoded. The zero value
// is an empty frame, and Reset makes it one again with its memory kept. It is not safe for concurrent use.
type EventsFrame struct {
	buf    []byte // without framesTail
	events int
}

const (
	framesHead = `{"type":"events","events":[`
	framesTail = `]}`
)

// Add appends an event, seq 0 being an ephemeral one. It answers false, and leaves the frame as it is, if
// the frame would grow past MaxServerFrame; the first event is taken whatever its size.
func (f *EventsFrame) Add(seq Seq, redelivered bool, body []byte) bool {
	if f.events == 0 {
		f.buf = append(f.buf[:0], framesHead...)
	}
	before := len(f.buf)
	f.buf = appendEntry(f.buf, f.events > 0, seq, redelivered, body)
	if f.events > 0 && len(f.buf)+len(framesTail) > MaxServerFrame {
		f.buf = f.buf[:before]
		return false
	}
	f.events++
	return true
}

func appendEntry(dst []byte, comma bool, seq Seq, redelivered bool, body []byte) []byte {
	if comma {
		dst = append(dst, ',')
	}
	dst = append(dst, '{')
	if seq > 0 {
		dst = append(dst, `"seq":`...)
		dst = strconv.AppendInt(dst, int64(seq), 10)
		dst = append(dst, ',')
	}
	if redelivered {
		dst = append(dst, `"redelivered":true,`...)
	}
	dst = append(dst, `"event":`...)
	dst = append(dst, body...)
	return append(dst, '}')
}

// Len is the number of events.
func (f *EventsFrame) Len() int { return f.events }

// Bytes is the whole frame, good until the next Add or Reset; nil if it is empty.
func (f *EventsFrame) Bytes() []byte {
	if f.events == 0 {
		return nil
	}
	// The tail goes into the spare capacity and is overwritten by the next Add; grown memory is kept.
	whole := append(f.buf, framesTail...)
	f.buf = whole[:len(f.buf)]
	return whole
}

// Reset empties the frame.
func (f *EventsFrame) Reset() { f.buf, f.events = f.buf[:0], 0 }
