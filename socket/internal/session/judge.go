package session

import (
	"math"
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// maxEphemeral bounds the ids of ephemeral events that are remembered.
const maxEphemeral = 64

// advance judges what can be judged. Nothing is judged while an answer is awaited that may change
// where the session stands.
func (m *Machine) advance(now time.Time) {
	m.eat(now)
	for m.free() && len(m.queue) > 0 {
		d := m.queue[0]
		if !m.judge(now, d) {
			return
		}
		m.queue[0] = Delivery{}
		m.queue = m.queue[1:]
	}
	if len(m.queue) > 0 {
		return
	}
	if m.script == nil {
		m.older, m.queue = "", nil
	}
	if m.free() && m.end > m.sent {
		m.head = m.newScript(OpGap, m.here())
	}
}

func (m *Machine) free() bool {
	return m.phase == live && !m.breakDue && !m.connectDue && !m.refreshDue && len(m.feed) == 0 &&
		m.head == nil && (m.script == nil || m.script.Op == OpAcked)
}

// judge is the session rule. False: the pair stays at the head of the queue, and is judged again
// when what it needs is known.
func (m *Machine) judge(now time.Time, d Delivery) bool {
	id, seq := d.Event.ID, d.Pair.Seq
	// A pair without seq has no place in any epoch.
	if d.Event.Ephemeral {
		m.takeEphemeral(now, d)
		return true
	}
	if seq <= 0 {
		// Nobody can ack it: it stays with its ticket until that is handed on.
		m.waiting = append(m.waiting, waiting{math.MaxInt64, id, d.Ticket})
		return true
	}
	if d.Pair.Epoch != m.epoch {
		if d.Pair.Epoch != m.older || m.older == "" {
			m.head = m.newScript(OpEpoch, protocol.Position{Epoch: d.Pair.Epoch})
			return false
		}
		m.cover(d.Ticket)
		return true
	}
	if seq <= m.sent {
		if known, ok := m.ids.at(seq); ok && known != id {
			m.breakDue = true
			return false
		}
		m.cfg.Count(Duplicate, 1)
		m.wait(seq, id, d.Ticket)
		return true
	}
	if seq > m.sent+1 {
		m.head = m.newScript(OpGap, m.here())
		m.head.wanted = seq
		return false
	}
	if _, known := m.ids.find(id); known {
		if m.held != seq {
			m.head = m.newScript(OpHolds, protocol.Position{Epoch: m.epoch, Seq: seq, ID: id})
			return false
		}
		m.cfg.Count(Duplicate, 1)
		m.skip(seq, id)
		m.wait(seq, id, d.Ticket)
		return true
	}
	if d.Event.Expired(now) {
		m.cfg.Count(Expired, 1)
		m.skip(seq, id)
		d.settle() // by rule: nobody will get it
		return true
	}
	m.send(seq, d.Event, d.Redelivered)
	m.wait(seq, id, d.Ticket)
	return true
}

func (m *Machine) takeEphemeral(now time.Time, d Delivery) {
	defer d.settle()
	for _, id := range m.ephemeral {
		if id == d.Event.ID {
			m.cfg.Count(EphemeralDrop, 1)
			return
		}
	}
	if d.Event.Expired(now) {
		m.cfg.Count(EphemeralDrop, 1)
		return
	}
	if len(m.ephemeral) == maxEphemeral {
		m.ephemeral = append(m.ephemeral[:0], m.ephemeral[1:]...)
	}
	m.ephemeral = append(m.ephemeral, d.Event.ID)
	m.cfg.Count(Sent, 1)
	m.out.add(item{env: d.Event, redelivered: d.Redelivered})
}

// wait keeps the ticket until the client has acked seq, if it has not.
func (m *Machine) wait(seq protocol.Seq, id protocol.EventID, t Ticket) {
	switch {
	case t == nil:
	case seq <= m.acked:
		t.Settle()
	default:
		m.waiting = append(m.waiting, waiting{seq, id, t})
	}
}

// cover settles a pair of an older epoch: the welcome, once acked, vouches for it.
func (m *Machine) cover(t Ticket) {
	switch {
	case t == nil:
	case m.welcome.acked:
		m.cfg.Count(Covered, 1)
		t.Settle()
	default:
		m.covered = append(m.covered, t)
	}
}

func (m *Machine) send(seq protocol.Seq, env *protocol.Envelope, redelivered bool) {
	m.sent, m.sentID = seq, env.ID
	m.ids.add(env.ID, false)
	m.cfg.Count(Sent, 1)
	m.out.add(item{seq: seq, env: env, redelivered: redelivered || seq <= m.resent})
	if m.full() {
		m.Close(protocol.CloseSlowConsumer)
	}
}

// skip gives seq to id without showing it. Nobody can ack that seq: the ack before it covers it.
func (m *Machine) skip(seq protocol.Seq, id protocol.EventID) {
	m.sent, m.sentID = seq, id
	m.ids.add(id, true)
	m.coverSkipped()
}
