package session_test

import (
	"testing"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/socket/internal/session"
)

// One event's way through a session: judged, framed, acked.
func BenchmarkDeliver(b *testing.B) {
	w := newWorld(&testing.T{})
	s := w.connected()
	env := &protocol.Envelope{Body: make([]byte, 300), Time: start}
	tk := &ticket{}
	var f protocol.EventsFrame
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e := *env
		e.ID[0], e.ID[1], e.ID[2] = byte(i), byte(i>>8), byte(i>>16)
		seq := s.m.Sent() + 1
		s.m.Push(s.now, session.Delivery{Event: &e, Pair: protocol.Pair{User: "u", Epoch: w.log.epoch, Seq: seq}, Ticket: tk})
		_, wr := s.m.Take(s.now, &f)
		s.m.Written(s.now, wr)
		s.m.Ack(s.now, 1, seq)
	}
}
