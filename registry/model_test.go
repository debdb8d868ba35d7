package registry_test

import (
	"maps"
	"slices"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

// model is one user as the design describes him, in plain Go.
type model struct {
	epoch  protocol.Epoch // "": the hash has none
	base   protocol.Seq
	ids    []protocol.EventID // nil: there is no list
	acked  protocol.Seq
	made   bool // a break made the epoch, within the pause
	fields map[registry.Field]bool

	maxLog, trimLog int
	pause           bool // breaks by connect only once
}

func (m *model) clone() *model {
	c := *m
	c.ids, c.fields = slices.Clone(m.ids), maps.Clone(m.fields)
	return &c
}

func (m *model) known() bool { return m.epoch != "" && len(m.ids) > 0 }

func (m *model) end() protocol.Seq { return m.base + protocol.Seq(len(m.ids)) - 1 }

// at is the id with this seq, if the log has one.
func (m *model) at(seq protocol.Seq) (protocol.EventID, bool) {
	if !m.known() || seq < m.base || seq > m.end() {
		return protocol.EventID{}, false
	}
	return m.ids[seq-m.base], true
}

func (m *model) holds(p protocol.Position) bool {
	id, ok := m.at(p.Seq)
	return m.known() && p.Epoch == m.epoch && ok && id == p.ID
}

func (m *model) make(epoch protocol.Epoch) {
	m.epoch, m.base, m.acked, m.ids = epoch, 0, 0, []protocol.EventID{{}}
}

func (m *model) loseHash() {
	m.epoch, m.base, m.acked, m.made, m.fields = "", 0, 0, false, map[registry.Field]bool{}
}

// connect is the verdict on a resume, and whether it makes a new epoch.
func (m *model) connect(at, replaces registry.Field, resume *protocol.Position, fresh protocol.Epoch) (recovered bool) {
	switch {
	case !m.known():
		m.make(fresh)
	case resume == nil || resume.Epoch != m.epoch || resume.Seq < m.base:
	case m.holds(*resume):
		recovered = true
	case !m.made || !m.pause:
		m.make(fresh)
		m.made = true
	}
	delete(m.fields, replaces)
	m.fields[at] = true
	return recovered
}

// full says whether one more session would be too many.
func (m *model) full(at, replaces registry.Field, limit int) bool {
	others := 0
	for f := range m.fields {
		if f != at && f != replaces {
			others++
		}
	}
	return limit > 0 && others >= limit
}

// append gives the seq; 0 where a part of the log is missing, even if the list is there and grows.
func (m *model) append(id protocol.EventID) protocol.Seq {
	if len(m.ids) == 0 {
		return 0
	}
	m.ids = append(m.ids, id)
	return m.seqOf(len(m.ids) - 1)
}

func (m *model) careful(id protocol.EventID) protocol.Seq {
	if i := slices.Index(m.ids, id); i >= 0 {
		return m.seqOf(i)
	}
	seq := m.append(id)
	m.trim()
	return seq
}

func (m *model) seqOf(index int) protocol.Seq {
	if !m.known() {
		return 0
	}
	return m.base + protocol.Seq(index)
}

func (m *model) trim() {
	if cut := len(m.ids) - m.trimLog; m.known() && len(m.ids) > m.maxLog {
		m.ids = m.ids[cut:]
		m.base += protocol.Seq(cut)
	}
}

// fits says whether the log continues a view that has come to p.
func (m *model) fits(p protocol.Position) bool {
	if !m.known() || p.Epoch != m.epoch || m.base > p.Seq+1 || p.Seq > m.end() {
		return false
	}
	return p.Seq < m.base || m.holds(p)
}

func (m *model) refresh(at registry.Field, p protocol.Position) registry.RefreshVerdict {
	m.fields[at] = true
	switch {
	case !m.known() || p.Epoch != m.epoch:
		return registry.RefreshRehome
	case !m.fits(p):
		return registry.RefreshBreak
	}
	return registry.RefreshOK
}

func (m *model) holding(p protocol.Position) registry.Holding {
	switch {
	case !m.known() || p.Epoch != m.epoch:
		return registry.HoldsOther
	case p.Seq < m.base:
		return registry.HoldsLater
	case m.holds(p):
		return registry.HoldsID
	}
	return registry.HoldsOther
}

func (m *model) ack(p protocol.Position) {
	if m.holds(p) {
		m.acked = max(m.acked, p.Seq)
	}
}

// breaks says whether Break of this epoch makes a new one.
func (m *model) breaks(epoch, fresh protocol.Epoch) bool {
	if m.epoch == "" || m.epoch != epoch {
		return false
	}
	m.make(fresh)
	m.made = true
	return true
}
