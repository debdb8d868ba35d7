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
