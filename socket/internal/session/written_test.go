package session_test

import (
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// take gives the next frame to the client without saying that it is written.
func (s *sess) take() func() {
	s.t.Helper()
	var ef protocol.EventsFrame
	b, w := s.m.Take(s.now, &ef)
	if b == nil {
		s.t.Fatal("nothing to write")
	}
	s.got = append(s.got, decodeFrame(s.t, b))
	return func() { s.m.Written(s.now, w) }
}

// A client on a fast line acks before the write has returned: nothing is awaited any more.
func TestAnAckThatOvertakesItsWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	t1 := s.deliver("e1", w.append("e1"))
	written := s.take()
	s.ack(1, 1)
	written()
	s.wantSettled(true, t1)
	s.wait(time.Minute)
	s.wantClosed(0)
}

// A welcome is still being written when a re-home has judged already, and only waits for what was missed:
// the client owes no ack of what is void.
func TestAWriteThatEndsInTheMiddleOfARehome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.append("e1")
	s := w.session(resume(protocol.Position{Epoch: w.log.epoch}))
	s.scripts()
	written := s.take()
	w.noDocs = true
	s.m.Rehome(s.now, "a-111111111111")
	s.scripts()
	written()
	s.wait(30 * time.Second)
	s.wantClosed(0)
	w.noDocs = false
	s.wait(time.Minute)
	s.read()
	s.wantShown(2, "e1@1")
}

// Redis went back without anybody's noticing more than a lost connection: what it knew of acks may be gone.
func TestAckedIsWrittenAgainAfterALostConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	s.deliver("e1", w.append("e1"))
	s.read()
	s.ack(1, 1)
	s.wait(10 * time.Second)
	if w.log.acked != 1 {
		t.Fatalf("@acked is %d", w.log.acked)
	}
	w.log.acked = 0
	s.m.Refresh(s.now)
	s.wait(10 * time.Second)
	if w.log.acked != 1 {
		t.Errorf("@acked is %d after Redis lost it", w.log.acked)
	}
}

// A fence right after Redis went back: the log has grown again in another order (several partitions), and only
// by chance has the client's id at the client's seq.
func TestTrace_T37_ARehomeIntoALogOfAnotherOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	for _, name := range []string{"a1", "b1"} {
		s.deliver(name, w.append(name))
	}
	s.read()
	s.ack(1, 2)
	w.append("c1") // committed too; its pair is lost with the dump
	w.log.ids = []protocol.EventID{{}, w.event("c1").ID, w.event("b1").ID, w.event("a1").ID}
	s.m.Rehome(s.now, "a-111111111111")
	t1 := s.deliver("c1", protocol.Pair{User: "u", Epoch: w.log.epoch, Seq: 1})
	s.scripts()
	s.read()
	s.wantSettled(false, t1)
	if f := s.welcome(); f.N != 2 || f.Recovered {
		t.Errorf("%+v: c1 was never shown", f)
	}
}
