package session_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
	"github.com/lastmile-gateway/lastmile/socket/internal/session"
)

func (s *sess) wantClosed(want protocol.CloseCode) {
	s.t.Helper()
	if code, closed := s.m.Closed(); !closed && want != 0 || closed && code != want {
		s.t.Errorf("closed: %v with %d, want %d", closed, code, want)
	}
}

func TestRuleFive_AKnownIDIsLookedUp(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(w *world)
		broken int
	}{
		"the log holds it twice":   {func(w *world) { w.append("e1") }, 0},
		"the log begins later":     {func(w *world) { w.log.base, w.log.ids = 3, []protocol.EventID{w.event("e9").ID} }, 0},
		"the log has another":      {func(w *world) { w.append("e2") }, 1},
		"the log ends before":      {func(*world) {}, 1},
		"the log is another epoch": {func(w *world) { w.breakEpoch() }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.connected()
			p := w.append("e1")
			s.deliver("e1", p)
			s.read()
			p.Seq = 2
			tc.change(w)
			s.deliver("e1", p)
			s.read()
			s.wantShown(1, "e1@1")
			if s.counts[session.Broken] != tc.broken {
				t.Errorf("counts: %v", s.counts)
			}
		})
	}
}

func TestRuleSix_ALogThatEndsBeforeThePair(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	p := w.append("e1")
	p.Seq = 3
	s.deliver("e3", p)
	if s.counts[session.Broken] != 1 {
		t.Errorf("counts: %v", s.counts)
	}
	// What arrives while a gap is being read proves nothing against what was read.
	w = newWorld(t)
	s = w.connected()
	w.append("e1")
	s.push("e2", w.append("e2"))
	sc := s.m.Script(s.now)
	answer := w.run(sc)
	s.push("e3", w.append("e3"))
	s.m.Done(s.now, sc, answer)
	s.scripts()
	s.read()
	s.wantShown(1, "e1@1", "e2@2", "e3@3")
	if s.counts[session.Broken] != 0 {
		t.Errorf("counts: %v", s.counts)
	}
}

func TestScriptsRunOneAfterAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session()
	sc := s.m.Script(s.now)
	if sc == nil || s.m.Script(s.now) != nil || s.m.Wants(s.now) {
		t.Fatal("want one script")
	}
	s.push("e1", w.append("e1")) // routed while it registers
	answer := w.run(sc)
	s.m.Done(s.now, sc, answer)
	s.scripts()
	s.read()
	if f := s.welcome(); f.Seq != 1 {
		t.Errorf("%+v", f)
	}
}

func TestAckTimeouts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session()
	s.scripts()
	s.wait(15 * time.Second) // nothing is written yet
	s.read()
	s.deliver("e1", w.append("e1"))
	s.read()
	s.wait(59 * time.Second)
	s.wantClosed(0) // a reload takes its time, and what came meanwhile too
	s.ack(1, 0)
	s.wait(19 * time.Second)
	s.wantClosed(0) // counted from the welcome's ack
	s.wait(time.Second)
	s.wantClosed(protocol.CloseAckTimeout)

	s = w.session()
	s.scripts()
	s.read()
	s.wait(60 * time.Second)
	s.wantClosed(protocol.CloseAckTimeout)

	s = w.session(resume(protocol.Position{Epoch: w.log.epoch}))
	s.scripts()
	s.read()
	s.wait(20 * time.Second)
	s.wantClosed(protocol.CloseAckTimeout)

	s = w.connected()
	for i := range 100 { // one event each half second, acked a second late
		s.deliver(fmt.Sprintf("x%d", i), w.append(fmt.Sprintf("x%d", i)))
		s.read()
		s.wait(500 * time.Millisecond)
		if i > 1 {
			s.ack(1, s.m.Sent()-2)
		}
	}
	s.wantClosed(0)
	for i := range 50 { // and never again
		s.deliver(fmt.Sprintf("y%d", i), w.append(fmt.Sprintf("y%d", i)))
		s.read()
		s.wait(500 * time.Millisecond)
	}
	s.wantClosed(protocol.CloseAckTimeout)
}

func TestPlainClientsAckByWriting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session(plain)
	s.scripts()
	t1 := s.deliver("e1", w.append("e1"))
	s.wantSettled(false, t1)
	s.read()
	s.wantSettled(true, t1)
	s.wait(25 * time.Second)
	s.wantClosed(0)
	if w.log.acked != 1 {
		t.Errorf("@acked is %d", w.log.acked)
	}
}

func TestAckedIsWrittenSparingly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	zero := protocol.Position{Epoch: w.log.epoch}
	w.append("e1")
	w.append("e2")
	s := w.session(resume(zero))
	s.scripts()
	s.read()
	for seq := range protocol.Seq(3) { // what the log held at connect: at once
		s.ack(1, seq)
		s.scripts()
		if w.log.acked != seq {
			t.Errorf("@acked is %d after ack %d", w.log.acked, seq)
		}
	}
	w.ran = nil
	for i := range 30 { // else once in five seconds
		s.deliver(fmt.Sprintf("x%d", i), w.append(fmt.Sprintf("x%d", i)))
		s.read()
		s.ack(1, s.m.Sent())
		s.wait(500 * time.Millisecond)
	}
	n := 0
	for _, op := range w.ran {
		if op == session.OpAcked {
			n++
		}
	}
	if n < 2 || n > 4 {
		t.Errorf("%d writes in 15 s", n)
	}
	s.deliver("last", w.append("last"))
	s.read()
	s.ack(1, s.m.Sent())
	s.gone() // at its end
	if w.log.acked != s.m.Sent() || !s.m.Gone() || len(w.fields) != 0 {
		t.Errorf("@acked is %d of %d, fields %v", w.log.acked, s.m.Sent(), w.fields)
	}
}

func TestSlowConsumer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected(func(c *session.Config, _ *session.Client) { c.QueueEvents = 10 })
	var tickets []*ticket
	for i := range 12 {
		tickets = append(tickets, s.deliver(fmt.Sprint(i), w.append(fmt.Sprint(i))))
	}
	s.wantClosed(protocol.CloseSlowConsumer)
	s.read()
	s.wantSettled(false, tickets...)
	if held := s.gone(); held != 12 {
		t.Errorf("held %d", held)
	}
}

func TestEphemeralEventsGiveWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected(func(c *session.Config, _ *session.Client) { c.QueueEvents = 10 })
	for i := range 8 {
		name := fmt.Sprint(i)
		w.event(name).Ephemeral = true
		s.wantSettled(true, s.deliver(name, protocol.Pair{User: "u"}))
	}
	if s.counts[session.EphemeralDrop] != 3 {
		t.Errorf("counts: %v", s.counts)
	}
	s.wantClosed(0)
	s.read()
	s.wantShown(1, "0@0", "1@0", "2@0", "3@0", "4@0")
}

// A client that missed more than its queue takes gets it piece by piece, and is not taken for slow.
func TestLongReplayIsFedAsTheClientReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	zero := protocol.Position{Epoch: w.log.epoch}
	var want []string
	for i := range 300 {
		name := fmt.Sprint(i)
		w.append(name)
		w.event(name).Body = fmt.Appendf(nil, `{"id":%q,"x":%q}`, name, strings.Repeat("x", 3000))
		want = append(want, fmt.Sprintf("%s@%d", name, i+1))
	}
	s := w.session(resume(zero), func(c *session.Config, _ *session.Client) { c.QueueEvents, c.QueueBytes = 100, 100<<10 })
	s.scripts()
	for i := range 3 {
		name := fmt.Sprint("live", i)
		s.push(name, w.append(name))
		want = append(want, fmt.Sprintf("%s@%d", name, 301+i))
	}
	s.scripts()
	s.wantClosed(0)
	s.read()
	s.wantShown(1, want...)
}

func TestConnectTimeoutTokenAndRevocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.down = true
	s := w.session()
	for range 8 {
		s.wait(time.Second)
	}
	s.wantClosed(protocol.CloseOverloaded)
	w.down = false

	s = w.connected(func(_ *session.Config, c *session.Client) { c.Expires = start.Add(10 * time.Second) })
	s.wait(9 * time.Second)
	s.wantClosed(0)
	s.m.Token(start, start.Add(20*time.Second))
	s.wait(9 * time.Second)
	s.wantClosed(0)
	s.wait(2 * time.Second)
	s.wantClosed(protocol.CloseTokenExpired)

	s = w.session(func(_ *session.Config, c *session.Client) { c.Issued = start })
	sc := s.m.Script(s.now)
	answer := w.run(sc)
	answer.Connected.Revoked = start.Add(time.Millisecond)
	s.m.Done(s.now, sc, answer)
	s.wantClosed(protocol.CloseBadToken)

	s = w.connected(func(_ *session.Config, c *session.Client) { c.Issued = start })
	s.m.Refresh(s.now)
	sc = s.m.Script(s.now)
	s.m.Done(s.now, sc, session.Answer{Refreshed: registry.Refreshed{Revoked: start.Add(time.Second)}})
	s.wantClosed(protocol.CloseBadToken)
}

func TestADrainStillWritesWhatIsQueued(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	t1 := s.deliver("e1", w.append("e1"))
	s.m.Close(protocol.CloseRestart)
	s.read()
	s.wantShown(1, "e1@1")
	s.ack(1, 1) // comes before the peer's close
	s.wantSettled(true, t1)
	s.m.Close(protocol.CloseInternal)
	s.wantClosed(protocol.CloseRestart)
}

func TestRetriesPauseAndGiveUpAtTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	w.down = true
	s.m.Refresh(s.now)
	s.scripts()
	if s.m.Wants(s.now) || !s.m.Deadline(s.now).After(s.now) {
		t.Error("no pause after a failure")
	}
	s.m.End(s.now)
	for range 5 {
		s.scripts()
		s.now = s.now.Add(3 * time.Second)
	}
	if !s.m.Gone() {
		t.Error("tries to leave for ever")
	}
}

// Deadlines never lie in the past with nothing to do at them: whoever waits for them would spin.
func TestDeadlinesAreWorthWakingFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	w.down = true
	for range 200 {
		s.m.Tick(s.now)
		s.scripts()
		due := s.m.Deadline(s.now)
		if due.IsZero() || !due.After(s.now) {
			t.Fatalf("deadline %v at %v", due, s.now)
		}
		s.now = due
	}
	if s.now.Sub(start) < time.Minute {
		t.Errorf("200 wakes took %v only", s.now.Sub(start))
	}
	if !slices.Contains(w.ran, session.OpRefresh) {
		t.Error("never tried")
	}
}

// Redis may go back right after the answer of a script that was under way.
func TestARefreshThatIsWantedMeanwhileIsNotForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session()
	for _, op := range []session.Op{session.OpConnect, session.OpRefresh} {
		sc := s.m.Script(s.now)
		answer := w.run(sc)
		s.m.Refresh(s.now)
		t1 := s.push("e1", protocol.Pair{User: "u", Epoch: w.log.epoch, Seq: 1})
		s.m.Done(s.now, sc, answer)
		if next := s.m.Script(s.now); sc.Op != op || next == nil || next.Op != session.OpRefresh || t1.settled {
			t.Fatalf("after %v: %+v", sc.Op, next)
		} else {
			s.m.Done(s.now, next, session.Answer{Err: errors.New("away")})
		}
		s.now = s.now.Add(3 * time.Second)
	}
	if sc := s.m.Script(s.now); sc == nil || sc.Op != session.OpRefresh {
		t.Errorf("a refresh that failed is not tried again: %+v", sc)
	}
}

func TestEphemeralEventsAgeInTheQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.connected()
	w.event("typing").Ephemeral = true
	s.deliver("typing", protocol.Pair{User: "u"})
	s.deliver("e1", w.append("e1"))
	s.now = s.now.Add(11 * time.Second)
	s.read()
	s.wantShown(1, "e1@1")
}
