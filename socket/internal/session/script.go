package session

import (
	"errors"
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

// Op is a kind of script.
type Op int

// What a session asks the world for, one at a time.
const (
	OpConnect Op = iota // registry.Connect with Connect → Connected
	OpFetch             // outbox: the events IDs → Docs
	OpEpoch             // the registry's epoch of the user → Epoch
	OpHolds             // registry.Holds of Position → Holding
	OpGap               // registry.Gap after Position → IDs, or ErrBreak
	OpBreak             // registry.Break of Position.Epoch
	OpRefresh           // registry.Refresh of At and Position → Refreshed
	OpAcked             // registry.Acked of Position
	OpLeave             // registry.Leave of At.Field
)

// Script is a question to the world. Exactly one of a session runs at a time.
type Script struct {
	Op       Op
	User     protocol.UserID
	At       registry.Location
	Replaces registry.Field
	Resume   *protocol.Position
	Position protocol.Position
	IDs      []protocol.EventID
	First    bool // of a connect: the session was never registered

	wanted  protocol.Seq // of a gap: the log must reach it
	life    int          // of the machine when it was asked
	running bool
}

// Answer is what came of a script. Err: nothing is known; it is run again after a while, but for
// registry.ErrBreak of a gap.
type Answer struct {
	Err       error
	Connected registry.Connected
	Docs      map[protocol.EventID]*protocol.Envelope
	Epoch     protocol.Epoch
	Holding   registry.Holding
	IDs       []protocol.EventID
	Refreshed registry.Refreshed
}

const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 2 * time.Second
	// leaveTries bounds the scripts of a session that is over: a field that stays is found and
	// removed by whoever hands something on.
	leaveTries = 5
	// fetchChunk bounds what is fetched at once for a client that missed much.
	fetchChunk = 32
)

// Script returns the script to run now, or nil. Done must follow.
func (m *Machine) Script(now time.Time) *Script {
	if !m.Wants(now) {
		return nil
	}
	m.script.running = true
	return m.script
}

// Wants says whether Script would return one.
func (m *Machine) Wants(now time.Time) bool {
	m.plan(now)
	return m.script != nil && !m.script.running
}

// plan chooses the next script. The order matters: what is in doubt about the session itself is
// looked at before any further pair.
func (m *Machine) plan(now time.Time) {
	if m.script != nil || now.Before(m.pausedUntil) {
		return
	}
	switch {
	case m.phase == gone, m.phase == closing:
	case m.phase == ended:
		m.planEnd(now)
	case m.breakDue:
		m.ask(OpBreak, m.here())
	case m.connectDue:
		m.ask(OpConnect, protocol.Position{})
	case m.phase == live && (m.refreshDue || !now.Before(m.refreshAt)):
		m.ask(OpRefresh, m.here())
	case len(m.feed) > 0 && m.fetched == 0 && m.roomy():
		m.ask(OpFetch, protocol.Position{})
	case m.phase == live && m.ackedDirty() && !now.Before(m.ackedAt()):
		m.ask(OpAcked, *m.pos)
	case m.phase == live && m.head != nil:
		m.script, m.head = m.head, nil
	}
}

func (m *Machine) planEnd(now time.Time) {
	switch {
	case m.ackedDirty():
		m.ask(OpAcked, *m.pos)
	case m.registered:
		m.ask(OpLeave, protocol.Position{})
	default:
		m.phase = gone
	}
}

func (m *Machine) ask(op Op, pos protocol.Position) { m.script = m.newScript(op, pos) }

func (m *Machine) newScript(op Op, pos protocol.Position) *Script {
	s := &Script{Op: op, User: m.client.User, At: m.client.At, Position: pos, life: m.life}
	switch op {
	case OpRefresh:
		m.refreshDue = false // one that is asked for while this runs is a reason for another
	case OpConnect:
		m.refreshDue = false
		s.Replaces, s.Resume, s.First = m.replaces, m.pos, m.home == registry.Field{}
		m.registered = true // from here on it may be
	case OpFetch:
		s.IDs = m.feed[:min(len(m.feed), fetchChunk)]
	}
	return s
}

// here is where the session stands: the newest seq it knows and its id.
func (m *Machine) here() protocol.Position {
	return protocol.Position{Epoch: m.epoch, Seq: m.sent, ID: m.sentID}
}

// Done takes the answer of the script that ran.
func (m *Machine) Done(now time.Time, s *Script, a Answer) {
	if s != m.script {
		return
	}
	m.script = nil
	switch {
	case s.life != m.life:
		// Asked in an earlier life of the instance: the answer tells of a place that is left.
	case a.Err != nil && (s.Op != OpGap || !errors.Is(a.Err, registry.ErrBreak)):
		m.refreshDue = m.refreshDue || s.Op == OpRefresh
		m.failed(now)
	default:
		m.tries = 0
		m.answer(now, s, a)
	}
	m.advance(now)
}

// failed waits a while. Whatever was asked is asked again by whoever wanted it, after what became
// more urgent meanwhile.
func (m *Machine) failed(now time.Time) {
	m.tries++
	if m.phase == ended && m.tries >= leaveTries {
		m.phase = gone
		return
	}
	wait := min(lastRetry, firstRetry<<min(m.tries-1, 10))
	m.pausedUntil = now.Add(time.Duration((0.5 + m.cfg.Random()/2) * float64(wait)))
}
