package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// ConnectRequest registers a session.
type ConnectRequest struct {
	At Location
	// Resume is the client's position; nil: it has none.
	Resume *protocol.Position
	// Limit is how many sessions the user may have, this one among them. 0: any
	// number. Re-homes have none: their session was let in before.
	Limit int
	// Replaces is removed in the same step: a re-home moves its session, and at no
	// moment is the user nowhere. Zero: nothing.
	Replaces Field
}

// Connected is a user's log and whereabouts at the moment a session of his was
// registered. From then on every routed event finds the session.
type Connected struct {
	Epoch protocol.Epoch
	// Base is the seq of IDs[0].
	Base protocol.Seq
	// IDs is the whole log, never empty. The zero id is the sentinel of a log that
	// has not been trimmed yet.
	IDs []protocol.EventID
	// Recovered says that the log continues where the client has been.
	Recovered bool
	// Acked is the highest seq of this epoch known to be acked, which may be 0.
	Acked protocol.Seq
	// HasAcked says that there is one.
	HasAcked bool
	// Locations are the user's sessions, this one among them.
	Locations []Location
	// Revoked: tokens issued before are refused. Zero: none.
	Revoked time.Time
}

// End is the seq of the log's last element.
func (c *Connected) End() protocol.Seq { return c.Base + protocol.Seq(len(c.IDs)) - 1 }

// EndID is the id of the log's last element; zero where that is the sentinel.
func (c *Connected) EndID() protocol.EventID { return c.IDs[len(c.IDs)-1] }

// At is the id with this seq, if the log holds it.
func (c *Connected) At(seq protocol.Seq) (protocol.EventID, bool) {
	if seq < c.Base || seq > c.End() {
		return protocol.EventID{}, false
	}
	return c.IDs[seq-c.Base], true
}

// After is the part of IDs that lies after seq; all of it if the log begins later.
func (c *Connected) After(seq protocol.Seq) []protocol.EventID {
	i := min(max(seq+1-c.Base, 0), protocol.Seq(len(c.IDs)))
	return c.IDs[i:]
}

// TooManySessionsError is what Connect returns when the user has as many sessions
// as he may have. Nothing was registered. Who removes the fields of ended
// instances with Leave may try again.
type TooManySessionsError struct{ Locations []Location }

// Error says how many there are.
func (e *TooManySessionsError) Error() string {
	return fmt.Sprintf("connect session: the user has %d already", len(e.Locations))
}

// Connect registers a session, makes the user's log if there is none, and judges
// the resume: recovered if the log is of the same epoch, reaches from the
// client's seq on, and holds the client's id there. A log that ends before that
// seq, or holds another id there, went back to an older state: it gets a new
// epoch, but only once in Config.BreakPause. It returns *TooManySessionsError, or
// Redis' error.
//
// Done again, as after a lost reply, it has the same effect and answer, but for a
// resume that made a new epoch: that is then of another epoch, and not recovered.
func (r *Registry) Connect(ctx context.Context, user protocol.UserID, req ConnectRequest) (Connected, error) {
	k := keysOf(user)
	resume := protocol.Position{}
	if req.Resume != nil {
		resume = *req.Resume
	}
	reply, err := connectScript.Run(ctx, r.rdb, []string{k.at, k.log, k.revoked},
		req.At.String(), req.At.value(), string(protocol.NewEpoch()),
		r.cfg.ReplayWindow.Milliseconds(), r.cfg.BreakPause.Milliseconds(),
		req.Limit, req.Replaces.String(),
		string(resume.Epoch), int64(resume.Seq), resume.ID[:],
	).Slice()
	if err != nil {
		return Connected{}, fmt.Errorf("connect session: %w", err)
	}
	return decodeConnected(reply)
}

func decodeConnected(reply []any) (Connected, error) {
	if len(reply) == 2 {
		return Connected{}, &TooManySessionsError{Locations: decodeHash(reply[1]).locations}
	}
	if len(reply) != 5 {
		return Connected{}, fmt.Errorf("connect session: %d parts in the script's reply", len(reply))
	}
	h, ids := decodeHash(reply[2]), decodeIDs(reply[3])
	if h.epoch == "" || len(ids) == 0 {
		return Connected{}, fmt.Errorf("connect session: the script's reply has no log")
	}
	return Connected{
		Epoch: h.epoch, Base: h.base, IDs: ids, Recovered: integer(reply[1]) == 1,
		Acked: h.acked, HasAcked: h.hasAcked, Locations: h.locations, Revoked: decodeMillis(reply[4]),
	}, nil
}

// RefreshRequest is what a session knows: who it is, and how far it has come.
type RefreshRequest struct {
	At Location
	// Position is the session's epoch, the last seq it sent, and the id of that.
	Position protocol.Position
}

// RefreshVerdict is what a refresh found.
type RefreshVerdict int

const (
	// RefreshOK says that the log is the session's. What lies beyond its position is a gap.
	RefreshOK RefreshVerdict = iota
	// RefreshBreak says that the epoch is the session's, the log is not: another id at its
	// position, an end before it, or a beginning past what it needs next.
	RefreshBreak
	// RefreshRehome says that there is another epoch, or no log.
	RefreshRehome
)

// String names the verdict.
func (v RefreshVerdict) String() string {
	return [...]string{"ok", "break", "rehome"}[v]
}

// Refreshed is a refresh's answer. End is the seq of the log's last element (0
// with RefreshRehome); tokens issued before Revoked are refused.
type Refreshed struct {
	Verdict RefreshVerdict
	End     protocol.Seq
	Revoked time.Time
}

// Refresh puts the session's field back if it is missing, renews the expiry of
// the user's keys, and compares the session's position with the log.
func (r *Registry) Refresh(ctx context.Context, user protocol.UserID, req RefreshRequest) (Refreshed, error) {
	k, p := keysOf(user), req.Position
	reply, err := refreshScript.Run(ctx, r.rdb, []string{k.at, k.log, k.revoked},
		req.At.String(), req.At.value(), string(p.Epoch), int64(p.Seq), p.ID[:],
		r.cfg.ReplayWindow.Milliseconds(),
	).Slice()
	if err != nil {
		return Refreshed{}, fmt.Errorf("refresh session: %w", err)
	}
	if len(reply) != 3 {
		return Refreshed{}, fmt.Errorf("refresh session: %d parts in the script's reply", len(reply))
	}
	verdict := RefreshVerdict(integer(reply[0]))
	if verdict < RefreshOK || verdict > RefreshRehome {
		return Refreshed{}, fmt.Errorf("refresh session: unknown verdict %d", verdict)
	}
	return Refreshed{Verdict: verdict, End: protocol.Seq(integer(reply[1])), Revoked: decodeMillis(reply[2])}, nil
}

// Leave removes these fields and no others: never another session's of the same
// user, however the two overlap. The log stays for its replay window.
func (r *Registry) Leave(ctx context.Context, user protocol.UserID, fields ...Field) error {
	if len(fields) == 0 {
		return nil
	}
	return r.QueueLeave(ctx, r.rdb, user, fields...).Err()
}

// QueueLeave queues Leave onto a pipeline.
func (r *Registry) QueueLeave(ctx context.Context, p redis.Cmdable, user protocol.UserID, fields ...Field) *redis.IntCmd {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.String()
	}
	return p.HDel(ctx, keysOf(user).at, names...)
}
