package session

import (
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

func (m *Machine) answer(now time.Time, s *Script, a Answer) {
	switch s.Op {
	case OpAcked:
		if s.Position.Epoch == m.epoch {
			m.ackedSaved = max(m.ackedSaved, s.Position.Seq)
		}
		m.ackedTime = now
	case OpLeave:
		m.registered, m.phase = false, gone
	}
	if m.phase >= closing {
		return
	}
	switch s.Op {
	case OpConnect:
		m.connected(now, s, a.Connected)
	case OpFetch:
		m.answered(now, s, a.Docs)
	case OpEpoch:
		if a.Epoch == m.epoch {
			m.older = s.Position.Epoch
		} else {
			m.connectDue = true
		}
	case OpHolds:
		if a.Holding == registry.HoldsOther {
			m.breakDue = true
		} else {
			m.held = s.Position.Seq
		}
	case OpGap:
		m.gap(s.wanted, a)
	case OpBreak:
		m.cfg.Count(Broken, 1)
		m.breakDue, m.connectDue = false, true
	case OpRefresh:
		m.refreshed(now, a.Refreshed)
	}
}

func (m *Machine) connected(now time.Time, s *Script, c registry.Connected) {
	m.connectDue, m.breakDue = false, false
	m.replaces, m.home = registry.Field{}, s.At.Field
	m.nextRefresh(now)
	if m.revoked(c.Revoked) {
		m.Close(protocol.CloseBadToken)
		return
	}
	m.resent = 0
	if c.Epoch == m.epoch {
		m.resent = m.sent
		if m.contradicts(&c) {
			m.breakDue = true
			return
		}
	} else {
		for _, w := range m.waiting {
			m.covered = append(m.covered, w.ticket)
		}
		m.waiting, m.ackedSaved = nil, nothing
	}
	m.cfg.Count(QueueDrop, m.out.void(&m.welcome.n))
	m.epoch, m.end, m.connectEnd = c.Epoch, c.End(), c.End()
	if c.HasAcked {
		m.ackedSaved = max(m.ackedSaved, c.Acked)
	}
	m.older, m.held, m.head = "", 0, nil
	m.noFeed()
	m.acked, m.written = nothing, ackTimer{}
	m.welcome.acked = false
	if !c.Recovered || s.Resume == nil {
		m.startFresh(&c)
		return
	}
	m.sent, m.sentID = s.Resume.Seq, s.Resume.ID
	m.ids.reset(c.Base, c.IDs[:len(c.IDs)-len(c.After(m.sent))])
	m.feed, m.atStart = c.After(m.sent), true
	if len(m.feed) > 0 {
		m.greet = &c
		return
	}
	m.greeted(true)
}

// contradicts looks for a pair that waits for the ack of a seq at which the log now has another id: that
// seq's ack would settle the wrong one. And for any other seq at which the log had another id before: it went
// back and grew again, and that it has the client's id at the client's position may be chance.
func (m *Machine) contradicts(c *registry.Connected) bool {
	if m.ids.differ(c) {
		return true
	}
	for _, w := range m.waiting {
		if id, ok := c.At(w.seq); ok && id != w.id {
			return true
		}
	}
	return false
}

// startFresh puts the client at the end of the log: what it shows, it loads (again).
func (m *Machine) startFresh(c *registry.Connected) {
	m.sent, m.sentID = c.End(), c.EndID()
	m.ids.reset(c.Base, c.IDs)
	m.noFeed()
	m.greeted(false)
}

func (m *Machine) greeted(recovered bool) {
	switch {
	case m.welcome.n > 0:
		m.cfg.Count(Rehomed, 1)
	case recovered:
		m.cfg.Count(Recovered, 1)
	case m.pos == nil:
		m.cfg.Count(Fresh, 1)
	}
	if !recovered {
		if m.pos != nil {
			m.cfg.Count(NotRecovered, 1)
		}
		m.pos = nil
	}
	m.phase, m.acked = live, nothing
	m.welcome = welcome{n: m.welcome.n + 1, seq: m.sent, recovered: recovered}
	w := m.cfg.Welcome
	w.N, w.Session, w.User, w.Instance = m.welcome.n, m.client.At.Session, m.client.User, m.client.At.Instance
	w.Position = m.here()
	w.Recovered, w.ReconnectWithin, w.TokenExpiresAt = recovered, m.cfg.ReconnectWithin(), m.client.Expires
	m.out.add(item{raw: w.AppendTo(nil), welcome: w.N})
}

// answered takes the contents of the first part of the feed. The welcome waits for it.
func (m *Machine) answered(now time.Time, s *Script, docs map[protocol.EventID]*protocol.Envelope) {
	if m.greet != nil {
		c := m.greet
		for _, id := range s.IDs {
			if docs[id] == nil {
				m.startFresh(c)
				return
			}
		}
		m.greet = nil
		m.greeted(true)
	}
	m.docs, m.fetched = docs, len(s.IDs)
	m.eat(now)
}

// eat takes what was fetched, in order and by rule 5, as far as there is room in the send queue.
func (m *Machine) eat(now time.Time) {
	for m.phase == live && m.fetched > 0 && m.roomy() {
		id, seq := m.feed[0], m.sent+1
		env := m.docs[id]
		_, known := m.ids.find(id)
		switch {
		case known: // both seqs are in the log: it was just read
			m.cfg.Count(Duplicate, 1)
			m.skip(seq, id)
		case env == nil:
			m.missing()
			return
		case env.Expired(now):
			m.cfg.Count(Expired, 1)
			m.skip(seq, id)
		default:
			m.send(seq, env, false)
		}
		m.feed = m.feed[1:]
		m.fetched--
	}
	if m.fetched == 0 {
		m.docs = nil
	}
}

// missing is about an id of the log that has no document. In what a client missed while it was away
// it only says that it was away too long; in what was appended just now the log can't be right.
func (m *Machine) missing() {
	m.noFeed()
	if m.atStart {
		m.pos, m.connectDue = nil, true
	} else {
		m.breakDue = true
	}
}

func (m *Machine) noFeed() { m.feed, m.docs, m.fetched, m.greet = nil, nil, 0, nil }

func (m *Machine) gap(wanted protocol.Seq, a Answer) {
	reach := m.sent + protocol.Seq(len(a.IDs))
	if a.Err != nil || reach < wanted {
		m.breakDue = true
		return
	}
	m.cfg.Count(Gap, 1)
	m.end = reach
	m.feed, m.atStart = a.IDs, false
}

func (m *Machine) refreshed(now time.Time, r registry.Refreshed) {
	m.nextRefresh(now)
	switch {
	case m.revoked(r.Revoked):
		m.Close(protocol.CloseBadToken)
	case r.Verdict == registry.RefreshBreak:
		m.breakDue = true
	case r.Verdict == registry.RefreshRehome:
		m.connectDue = true
	default:
		m.end = max(m.end, r.End)
	}
}

// nextRefresh spreads the refreshes: a tenth to both sides.
func (m *Machine) nextRefresh(now time.Time) {
	m.refreshAt = now.Add(time.Duration((0.9 + m.cfg.Random()/5) * float64(m.cfg.RefreshInterval)))
}

// revoked compares with the token's own time, which has whole seconds: one that was made in the same
// second before the revocation must not pass.
func (m *Machine) revoked(at time.Time) bool { return !at.IsZero() && m.client.Issued.Before(at) }
