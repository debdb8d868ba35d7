package session_test

import (
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/socket/internal/session"
)

func TestTrace_T01_ReplayIntoAHalfOpenConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	zero := protocol.Position{Epoch: w.log.epoch}
	p1 := w.append("e1") // its entry is still unread
	s := w.session(resume(zero))
	s.scripts()
	s.read()
	s.wantShown(1, "e1@1")
	t1 := s.deliver("e1", p1)
	s.wantShown(1, "e1@1")
	s.wantSettled(false, t1)
	if held := s.gone(); held != 1 {
		t.Errorf("held %d pairs at the end, want 1 to hand on", held)
	}
}

func TestTrace_T02_DuplicatesWaitForTheAckOfTheOriginal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	p1 := w.append("e1")
	original := s.deliver("e1", p1)
	s.read()
	moved, careful := s.deliver("e1", p1), s.deliver("e1", p1)
	s.wantSettled(false, original, moved, careful)
	s.ack(1, 1)
	s.wantSettled(true, original, moved, careful)
	late := s.deliver("e1", p1)
	s.wantSettled(true, late)
	s.read()
	s.wantShown(1, "e1@1")
}

func TestTrace_T03_AWelcomeThatNobodyReadCoversNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p1 := w.append("e1")
	s := w.session()
	s.scripts()
	t1 := s.deliver("e1", p1)
	s.read() // written, not acked
	s.wantSettled(false, t1)
	if held := s.gone(); held != 1 {
		t.Errorf("held %d, want 1", held)
	}

	s = w.session()
	s.scripts()
	s.read()
	t1 = s.deliver("e1", p1)
	s.ack(1, 1)
	s.wantSettled(true, t1) // loaded with the page
}

func TestTrace_T04_APairOfAnOlderEpochIsCovered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.append("e1")
	w.breakEpoch()
	s := w.connected()
	e3 := s.deliver("e3", w.append("e3"))
	s.read()
	s.ack(1, 1)
	t1 := s.deliver("e1", old)
	s.wantSettled(true, e3, t1)
	s.read()
	s.wantShown(1, "e3@1")
	if s.counts[session.Covered] != 1 || s.counts[session.Rehomed] != 0 {
		t.Errorf("counts: %v", s.counts)
	}
}

func TestTrace_T04_NotBeforeTheWelcomeIsAcked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.append("e1")
	w.breakEpoch()
	s := w.session()
	s.scripts()
	t1 := s.deliver("e1", old)
	s.read()
	s.wantSettled(false, t1)
	s.ack(1, 0)
	s.wantSettled(true, t1)
}

func TestTrace_T05_AGapThatTheLogNoLongerHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	p1, p2 := w.append("e1"), w.append("e2")
	w.log.base, w.log.ids = 2, w.log.ids[2:] // trimmed
	t2 := s.deliver("e2", p2)
	s.read()
	if f := s.welcome(); f.N != 2 || f.Recovered || f.Epoch == p1.Epoch {
		t.Fatalf("want a fresh welcome in-band, got %+v", f)
	}
	t1 := s.deliver("e1", p1)
	s.wantSettled(false, t1, t2)
	s.ack(2, s.welcome().Seq)
	s.wantSettled(true, t1, t2)
	s.read()
	s.wantShown(2)
}

func TestTrace_T08_ResumeBeyondOrBesideTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.append("e7")
	for _, p := range []protocol.Position{
		{Epoch: w.log.epoch, Seq: 1, ID: w.event("e5").ID},
		{Epoch: w.log.epoch, Seq: 9, ID: w.event("e9").ID},
		{Epoch: "otherepoch000000", Seq: 1, ID: w.event("e7").ID},
	} {
		s := w.session(resume(p))
		s.scripts()
		s.read()
		if s.welcome().Recovered {
			t.Errorf("recovered at %+v", p)
		}
	}
}

func TestTrace_T09_RefreshPutsTheRegistrationBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	clear(w.fields)
	w.append("e1") // whoever routed it saw no location
	s.wait(34 * time.Second)
	if !w.fields[s.m.At()] {
		t.Error("not registered again")
	}
	s.read()
	s.wantShown(1, "e1@1")
	if s.counts[session.Gap] != 1 {
		t.Errorf("counts: %v", s.counts)
	}

	w.breakEpoch()
	s.m.Refresh(s.now)
	s.scripts()
	s.read()
	if f := s.welcome(); f.N != 2 || f.Recovered {
		t.Errorf("want a fresh welcome, got %+v", f)
	}
}

func TestTrace_T16_IdsInTheLogWithoutDocuments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	zero := protocol.Position{Epoch: w.log.epoch}
	w.append("e1")
	w.append("e2")
	delete(w.docs, w.event("e1").ID)
	epoch := w.log.epoch
	s := w.session(resume(zero))
	s.scripts()
	s.read()
	f := s.welcome()
	if f.Recovered || f.Seq != 2 || f.N != 1 || w.log.epoch != epoch {
		t.Errorf("want not recovered in the same epoch, got %+v", f)
	}
	s.wantShown(1)

	// On a live session the log can't be right.
	s = w.connected()
	w.append("e3")
	p4 := w.append("e4")
	delete(w.docs, w.event("e3").ID)
	s.deliver("e4", p4)
	s.read()
	if f := s.welcome(); f.N != 2 || f.Recovered || w.log.epoch == epoch {
		t.Errorf("want a break, got %+v", f)
	}
}

func TestTrace_T21_TheSameEventUnderTwoSeqs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.append("e1")
	at1 := protocol.Position{Epoch: w.log.epoch, Seq: 1, ID: w.event("e1").ID}
	p2 := w.append("e1")
	s := w.session(resume(at1))
	s.scripts()
	s.read()
	s.wantShown(1) // its id is known from the log
	s.ack(1, 1)
	t2 := s.deliver("e1", p2)
	s.wantSettled(true, t2)

	p3 := w.append("e1") // live
	t3 := s.deliver("e1", p3)
	s.read()
	s.wantShown(1)
	s.wantSettled(true, t3)
	if s.counts[session.Broken] != 0 {
		t.Errorf("counts: %v", s.counts)
	}
}

func TestTrace_T27_TheLastSeqIsSkipped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	t1 := s.deliver("e1", w.append("e1"))
	w.event("e2").ExpiresAt = start.Add(-time.Second)
	t2 := s.deliver("e2", w.append("e2"))
	t3 := s.deliver("e1", w.append("e1"))
	s.read()
	s.wantShown(1, "e1@1")
	s.wantSettled(false, t1, t3)
	s.ack(1, 1)
	s.wantSettled(true, t1, t2, t3)

	t4 := s.deliver("e1", w.append("e1")) // skipped when all is acked
	s.wantSettled(true, t4)
	s.wait(6 * time.Second)
	if w.log.acked != 4 {
		t.Errorf("@acked is %d, want 4", w.log.acked)
	}
}

func TestTrace_T27_ExpiredInTheQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	t1 := s.deliver("e1", w.append("e1"))
	w.event("e2").ExpiresAt = start.Add(time.Second)
	t2 := s.deliver("e2", w.append("e2"))
	s.now = s.now.Add(2 * time.Second)
	s.read()
	s.wantShown(1, "e1@1")
	s.ack(1, 1)
	s.wantSettled(true, t1, t2)
}

func TestTrace_T25_ACrashBeforeAckedWasWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	p1 := w.append("e1")
	s.deliver("e1", p1)
	s.read()
	s.m.Ack(s.now, 1, 1) // and nothing more: the server is gone
	if w.log.acked != 0 {
		t.Fatal("@acked was written")
	}
	next := w.session(resume(protocol.Position{Epoch: w.log.epoch, Seq: 1, ID: w.event("e1").ID}))
	next.scripts()
	next.read()
	moved := next.deliver("e1", p1)
	next.wantSettled(false, moved)
	next.ack(1, 1)
	next.scripts()
	next.read()
	next.wantSettled(true, moved)
	next.wantShown(1)
	if w.log.acked != 1 {
		t.Errorf("@acked is %d: the notifier would not know", w.log.acked)
	}
}
