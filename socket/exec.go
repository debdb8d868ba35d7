package socket

import (
	"context"
	"errors"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
	"github.com/lastmile-gateway/lastmile/socket/internal/session"
)

// exec runs a session's script.
func (c *conn) exec(sc *session.Script) session.Answer {
	ctx, cancel := context.WithTimeout(c.s.scripts, commandTimeout)
	defer cancel()
	var a session.Answer
	reg, p := c.s.reg, sc.Position
	switch sc.Op {
	case session.OpConnect:
		a.Connected, a.Err = c.connect(ctx, sc)
	case session.OpFetch:
		a.Docs, a.Err = c.s.store.Fetch(ctx, sc.IDs...)
	case session.OpEpoch:
		var u registry.User
		u, a.Err = reg.Lookup(ctx, sc.User)
		a.Epoch = u.Epoch
	case session.OpHolds:
		a.Holding, a.Err = reg.Holds(ctx, sc.User, p.Epoch, p.Seq, p.ID)
	case session.OpGap:
		a.IDs, a.Err = reg.Gap(ctx, sc.User, p.Epoch, p.Seq, p.ID)
	case session.OpBreak:
		a.Epoch, a.Err = reg.Break(ctx, sc.User, p.Epoch)
	case session.OpRefresh:
		a.Refreshed, a.Err = reg.Refresh(ctx, sc.User, registry.RefreshRequest{At: sc.At, Position: p})
	case session.OpAcked:
		a.Err = reg.Acked(ctx, sc.User, p)
	case session.OpLeave:
		a.Err = reg.Leave(ctx, sc.User, sc.At.Field)
	}
	return a
}

// connect registers the session. Over the limit it first takes the fields of ended instances away.
func (c *conn) connect(ctx context.Context, sc *session.Script) (registry.Connected, error) {
	req := registry.ConnectRequest{At: sc.At, Resume: sc.Resume, Replaces: sc.Replaces}
	if sc.First {
		req.Limit = c.s.cfg.MaxSessions
	}
	connected, err := c.s.reg.Connect(ctx, sc.User, req)
	var tooMany *registry.TooManySessionsError
	if !errors.As(err, &tooMany) {
		return connected, err
	}
	if err := c.leaveEnded(ctx, sc.User, tooMany.Locations); err != nil {
		return connected, err
	}
	connected, err = c.s.reg.Connect(ctx, sc.User, req)
	if errors.As(err, &tooMany) {
		c.shut(protocol.CloseTooManySessions)
	}
	return connected, err
}

func (c *conn) leaveEnded(ctx context.Context, user protocol.UserID, locations []registry.Location) error {
	var ids []protocol.InstanceID
	for _, at := range locations {
		ids = append(ids, at.Instance)
	}
	runs, err := c.s.leases.Running(ctx, ids...)
	if err != nil {
		return err
	}
	var ended []registry.Field
	for _, at := range locations {
		if !runs[at.Instance] || (at.Instance == c.s.Instance() && !c.s.has(user, at.Session)) {
			ended = append(ended, at.Field)
		}
	}
	return c.s.reg.Leave(ctx, user, ended...)
}

// has says whether a session is on this server.
func (s *Server) has(user protocol.UserID, id protocol.SessionID) bool {
	for _, c := range s.hub.of(user) {
		if c.id == id {
			return true
		}
	}
	return false
}
