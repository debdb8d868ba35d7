package socket

import (
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// Status is what a server says of itself, for people to look at.
type Status struct {
	Name        string              `json:"name"`
	Instance    protocol.InstanceID `json:"instance,omitempty"`
	State       string              `json:"state"`
	Ready       bool                `json:"ready"`
	Reason      string              `json:"reason,omitempty"` // why it is not ready
	Started     time.Time           `json:"started"`
	Connections int                 `json:"connections"`
	Users       int                 `json:"users"`
	Sessions    int                 `json:"sessions"`
	Inbox       InboxStatus         `json:"inbox"`
	LastBeat    time.Time           `json:"lastBeat,omitzero"`
	LastProbe   time.Time           `json:"lastProbe,omitzero"`
	ProbeMillis int64               `json:"probeMillis"`
}

// InboxStatus is what was read from the inbox and not settled.
type InboxStatus struct {
	Entries int `json:"entries"`
	Bytes   int `json:"bytes"`
}

// Status returns a snapshot.
func (s *Server) Status() Status {
	st := Status{
		Name: s.cfg.Name, Instance: s.Instance(), State: stateNames[s.state.Load()], Ready: true,
		Started: s.started, Connections: s.conns.count(),
	}
	if err := s.Ready(); err != nil {
		st.Ready, st.Reason = false, err.Error()
	}
	st.Users, st.Sessions = s.hub.sessions()
	if l := s.current.Load(); l != nil {
		st.Inbox.Entries, st.Inbox.Bytes = l.tracker.size()
		st.LastBeat, st.ProbeMillis = l.keeper.LastBeat(), l.lag.Load()
		if at := l.probed.Load(); at != 0 {
			st.LastProbe = time.UnixMilli(at)
		}
	}
	return st
}
