package socket

import (
	"time"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/socket/internal/session"
)

// route gives a pair to all sessions of its user here; where there are none it is handed on.
func (l *life) route(tk *ticket, now time.Time) {
	if tk.settled.Load() {
		return
	}
	conns := l.s.hub.of(tk.pair.User)
	if len(conns) == 0 || (tk.pair.Seq <= 0 && !tk.event.Ephemeral) { // without a place in a log nobody can ack it
		l.nobody(tk)
		return
	}
	tk.holders.Store(int32(len(conns)) + 1)
	for _, c := range conns {
		if !c.push(now, tk) {
			l.release(tk)
		}
	}
	l.release(tk)
	if !tk.event.Ephemeral && l.s.hand.Due(tk.entry.routed, now) {
		tk.handOn() // whatever sessions there are
	}
}

// nobody is about a pair whose user has no session here.
func (l *life) nobody(tk *ticket) {
	if tk.event.Ephemeral {
		l.s.metrics.count(session.EphemeralDrop, 1)
		tk.Settle() // not worth a move
		return
	}
	tk.handOn()
}

// release gives up one hold on a pair. The last one to do so looks whether there is a newer session.
func (l *life) release(tk *ticket) {
	if tk.holders.Add(-1) == 0 && !tk.settled.Load() {
		l.route(tk, time.Now())
	}
}

// kick closes the sessions of a user that are older than the control says.
func (l *life) kick(c *inbox.Control) {
	for _, conn := range l.s.hub.of(c.Kick) {
		if conn.since.Before(c.Before) {
			conn.shut(protocol.CloseKicked)
		}
	}
}
