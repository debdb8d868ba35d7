package session_test

import (
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/socket/internal/session"
)

func TestTrace_T30_RehomeWithEventsInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	t1, t2 := s.deliver("e1", w.append("e1")), s.deliver("e2", w.append("e2"))
	s.read()
	s.ack(1, 1)
	p3 := w.append("e3")
	s.m.Rehome(s.now, "a-111111111111")
	s.scripts()
	t3 := s.deliver("e3", p3)
	s.read()
	if f := s.welcome(); f.N != 2 || !f.Recovered || f.Seq != 1 {
		t.Fatalf("want recovered at 1, got %+v", f)
	}
	s.wantShown(2, "e2@2", "e3@3") // e2 again: the client drops it
	s.ack(1, 2)                    // under way before the welcome
	s.ack(2, 3)
	s.wantSettled(true, t1, t3)
	s.wantSettled(false, t2) // of the old inbox, which a reaper takes
	for f := range w.fields {
		if f.Instance != "a-111111111111" {
			t.Errorf("field %v is left", f)
		}
	}
}

func TestTrace_T31_AckOfAnOlderWelcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	t1 := s.deliver("e1", w.append("e1"))
	s.read()
	w.breakEpoch()
	t2 := s.deliver("e2", w.append("e2"))
	s.read()
	if f := s.welcome(); f.N != 2 || f.Recovered {
		t.Fatalf("want a fresh welcome, got %+v", f)
	}
	s.ack(1, 1)
	s.wantSettled(false, t1, t2)
	if s.counts[session.StaleAck] != 1 {
		t.Errorf("counts: %v", s.counts)
	}
	if held := s.gone(); held != 2 {
		t.Errorf("held %d, want both to hand on", held)
	}
}

func TestTrace_T32_AckOfAnOlderWelcomeInTheSameEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	older := w.log.copy()
	s := w.connected()
	s.deliver("e1", w.append("e1"))
	s.read()
	w.log = older
	p2 := w.append("e2") // at 1, where the session knows e1
	t2 := s.deliver("e2", p2)
	s.read()
	s.ack(1, 1)
	s.wantSettled(false, t2)
	if s.welcome().N != 2 || s.welcome().Recovered {
		t.Errorf("want a fresh welcome, got %+v", s.welcome())
	}
}

func TestTrace_T33_AFreshWelcomeThatIsDroppedWithTheQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	t1 := s.deliver("e1", w.append("e1"))
	s.read()
	s.ack(1, 1)
	w.breakEpoch()
	s.deliver("e2", w.append("e2")) // break: a fresh welcome lies in the queue
	s.m.Rehome(s.now, "a-111111111111")
	s.scripts()
	s.read()
	f := s.welcome()
	if f.Recovered {
		t.Errorf("recovered at a place that the client was never told: %+v", f)
	}
	if f.N != 2 {
		t.Errorf("the second welcome that is written has n %d", f.N)
	}
	s.wantSettled(true, t1)

	// Written, but not acked: the same.
	s.m.Rehome(s.now, "a-222222222222")
	s.scripts()
	s.read()
	if f := s.welcome(); f.N != 3 || f.Recovered {
		t.Errorf("want a fresh welcome again, got %+v", f)
	}
}

func TestTrace_T33_AFreshWelcomeAlthoughTheLogStillFits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	zero := protocol.Position{Epoch: w.log.epoch}
	w.append("e1")
	doc := w.event("e1")
	delete(w.docs, doc.ID)
	s := w.session(resume(zero))
	s.scripts() // not recovered, since the document is missing
	w.docs[doc.ID] = doc
	s.m.Rehome(s.now, "a-111111111111")
	s.scripts()
	s.read()
	if f := s.welcome(); f.N != 1 || f.Recovered {
		t.Errorf("want the fresh welcome again, got %+v", f)
	}
}

func TestTrace_T36_AnotherIDAtAnAckedSeq(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	older := w.log.copy()
	s := w.connected()
	s.deliver("e1", w.append("e1"))
	s.read()
	s.ack(1, 1)
	w.log = older
	t2 := s.deliver("e2", w.append("e2"))
	s.wantSettled(false, t2)
	if s.counts[session.Broken] != 1 {
		t.Errorf("counts: %v", s.counts)
	}
	s.read()
	s.ack(2, s.welcome().Seq)
	s.wantSettled(true, t2) // covered by the reload
}

func TestTrace_T37_TheSameEventsInAnotherOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	older := w.log.copy()
	s := w.connected()
	s.deliver("e2", w.append("e2"))
	s.deliver("e1", w.append("e1"))
	s.read()
	w.log = older
	p1, p2 := w.append("e1"), w.append("e2")
	s.ack(1, 1) // means e2
	t1 := s.push("e1", p1)
	t2 := s.push("e2", p2)
	s.wantSettled(false, t1, t2)
	s.scripts()
	s.read()
	if f := s.welcome(); f.N != 2 || f.Recovered {
		t.Fatalf("want a break, got %+v", f)
	}
	s.wantSettled(false, t1, t2)
}

func TestTrace_T38_ADuplicateBeyondAGap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	t1 := s.deliver("e1", w.append("e1"))
	p2 := w.append("e2")
	p3 := w.append("e1")
	t3 := s.deliver("e1", p3)
	s.read()
	s.wantShown(1, "e1@1", "e2@2")
	s.ack(1, 1)
	s.wantSettled(true, t1)
	s.wantSettled(false, t3)
	s.ack(1, 2)
	t2 := s.deliver("e2", p2)
	s.wantSettled(true, t2, t3)
}

func TestTrace_T39_RefreshComparesTheID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	older := w.log.copy()
	s := w.connected()
	s.deliver("e2", w.append("e2"))
	s.read()
	s.ack(1, 1)
	w.log = older
	w.append("e1")
	w.append("e2")
	s.m.Refresh(s.now)
	s.scripts()
	s.read()
	if f := s.welcome(); f.N != 2 || f.Recovered {
		t.Errorf("want a break, got %+v", f)
	}
}

func TestTrace_T45_NothingIsCoveredBeforeTheReloadIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	t1 := s.deliver("e1", w.append("e1"))
	s.read()
	old := t1
	w.breakEpoch()
	t2 := s.deliver("e2", w.append("e2"))
	s.read() // told to reload; the socket drops
	s.wantSettled(false, old, t2)
	if held := s.gone(); held != 2 {
		t.Errorf("held %d, want 2", held)
	}
	next := w.session() // without resume
	next.scripts()
	next.read()
	again := next.deliver("e2", protocol.Pair{User: "u", Epoch: w.log.epoch, Seq: 1})
	next.wantSettled(false, again)
	if held := next.gone(); held != 1 || w.log.acked != 0 {
		t.Errorf("held %d, acked %d", held, w.log.acked)
	}
}

func TestTrace_T52_AnAckBeforeTheLoadIsDoneIsNeverSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p5 := w.append("e5")
	s := w.session()
	s.scripts()
	s.read()
	t5 := s.deliver("e5", p5)
	t6 := s.deliver("e6", w.append("e6"))
	s.read()
	if held := s.gone(); held != 2 {
		t.Errorf("held %d, want e5 and e6", held)
	}
	s.wantSettled(false, t5, t6)
}

func TestTrace_T59_MongoAwayWithAGapAtTheHead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	w.append("e1")
	p2 := w.append("e2")
	w.noDocs = true
	t2 := s.deliver("e2", p2)
	for range 20 {
		s.wait(3 * time.Second)
	}
	s.wantSettled(false, t2)
	w.noDocs = false
	s.wait(3 * time.Second)
	s.read()
	s.wantShown(1, "e1@1", "e2@2")
	if _, closed := s.m.Closed(); closed {
		t.Error("closed although nothing was owed")
	}
}
