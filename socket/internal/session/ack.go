package session

import (
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// Ack takes a client's ack; false: it names a seq that was never sent.
func (m *Machine) Ack(now time.Time, n int64, seq protocol.Seq) bool {
	switch {
	case m.phase >= ended:
		return true
	case n != m.welcome.n || m.phase == connecting:
		m.cfg.Count(StaleAck, 1)
		return true
	case seq > m.sent:
		m.cfg.Count(BadAck, 1)
		return false
	case seq < m.welcome.seq:
		return true // not even the welcome's own
	}
	if !m.welcome.acked {
		m.welcome.acked = true
		m.written.since = now
		m.cfg.Count(Covered, len(m.covered))
		for _, t := range m.covered {
			settle(t)
		}
		m.covered = nil
	}
	if seq > m.acked {
		m.cfg.Count(Acked, int(seq-max(m.acked, m.welcome.seq)))
		m.acked = seq
		m.confirm()
		m.coverSkipped()
	}
	m.advance(now)
	return true
}

// coverSkipped lets the ack of a seq stand for the skipped ones right behind it.
func (m *Machine) coverSkipped() {
	before := m.acked
	for m.acked != nothing && m.acked < m.sent && m.ids.isSkipped(m.acked+1) {
		m.acked++
	}
	if m.acked != before {
		m.confirm()
	}
}

// confirm settles all up to acked, which becomes the place to resume from.
func (m *Machine) confirm() {
	m.pos = nil
	if id, ok := m.ids.at(m.acked); ok {
		m.pos = &protocol.Position{Epoch: m.epoch, Seq: m.acked, ID: id}
	}
	keep := m.waiting[:0]
	for _, w := range m.waiting {
		if w.seq <= m.acked {
			settle(w.ticket)
		} else {
			keep = append(keep, w)
		}
	}
	clear(m.waiting[len(keep):])
	m.waiting = keep
	if len(keep) == 0 {
		m.waiting = nil
	}
	m.written.acked(m.acked)
}

func settle(t Ticket) {
	if t != nil {
		t.Settle()
	}
}

func (m *Machine) ackedDirty() bool {
	return m.welcome.acked && m.pos != nil && m.pos.Epoch == m.epoch && m.acked > m.ackedSaved
}

// ackedAt is when @acked is to be written. What lay in the log at connect waits in other places, for
// a reaper or a notifier: they should know at once.
func (m *Machine) ackedAt() time.Time {
	if m.acked <= m.connectEnd {
		return time.Time{}
	}
	return m.ackedTime.Add(m.cfg.AckedInterval)
}

// Written says that what Take returned went out.
func (m *Machine) Written(now time.Time, w Writing) {
	if w.n != m.welcome.n || m.greet != nil || m.phase >= ended || (!w.welcome && w.seq == 0) {
		return // only control frames, or void by now
	}
	if !m.client.Acks {
		m.Ack(now, w.n, w.seq)
		return
	}
	switch {
	case w.welcome:
		m.written.welcomeAt = now
	case w.seq > m.acked: // else the client was faster than the return of the write
		m.written.add(now, w.seq)
	}
}

// ackTimer knows since when acks are awaited.
type ackTimer struct {
	welcomeAt time.Time // written
	since     time.Time // the welcome was acked
	records   []record
}

// record is what was written within a second.
type record struct {
	seq         protocol.Seq
	first, last time.Time
}

func (t *ackTimer) add(now time.Time, seq protocol.Seq) {
	if n := len(t.records); n > 0 && now.Sub(t.records[n-1].first) < time.Second {
		t.records[n-1].seq, t.records[n-1].last = seq, now
		return
	}
	t.records = append(t.records, record{seq, now, now})
}

func (t *ackTimer) acked(seq protocol.Seq) {
	n := 0
	for n < len(t.records) && t.records[n].seq <= seq {
		n++
	}
	t.records = append(t.records[:0], t.records[n:]...)
}

// ackDeadline is when the ack that is awaited longest is overdue; zero: none is awaited.
func (m *Machine) ackDeadline() time.Time {
	t := &m.written
	switch {
	case !m.welcome.acked && t.welcomeAt.IsZero():
		return time.Time{}
	case !m.welcome.acked && m.welcome.recovered:
		return t.welcomeAt.Add(m.cfg.AckTimeout)
	case !m.welcome.acked:
		return t.welcomeAt.Add(m.cfg.ReloadTimeout)
	case len(t.records) == 0:
		return time.Time{}
	case t.records[0].last.Before(t.since):
		return t.since.Add(m.cfg.AckTimeout)
	}
	return t.records[0].last.Add(m.cfg.AckTimeout)
}

func (m *Machine) ackLate(now time.Time) bool {
	due := m.ackDeadline()
	return m.phase == live && !due.IsZero() && !now.Before(due)
}
