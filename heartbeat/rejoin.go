package heartbeat

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// Rejoin makes a new instance of the name in the same process, after a lost
// lease: a fence. own are the earlier ids of this process; they are left as
// they are (End them when nothing refers to them any more).
//
// While an instance of the name that is not one's own holds a lease, Rejoin
// waits: it may be the leftover of a process killed before, which ends by
// itself within a lease. If its value rises meanwhile, it is alive, and Rejoin
// returns ErrSuperseded. Ended ones are claimed.
//
// Trouble with Redis is waited out too: Rejoin returns an id, ErrSuperseded, or
// ctx's error with what stood in the way.
func (l *Leases) Rejoin(ctx context.Context, name string, own ...protocol.InstanceID) (protocol.InstanceID, int64, error) {
	if _, err := protocol.ParseInstanceName(name); err != nil {
		return "", 0, fmt.Errorf("rejoin: %w", err)
	}
	r := rejoin{leases: l, name: name, id: protocol.NewInstanceID(name), own: own, seen: map[string]string{}}
	ticker := time.NewTicker(l.cfg.Every)
	defer ticker.Stop()
	for {
		value, done, err := r.try(ctx)
		if done {
			if err != nil {
				return "", 0, fmt.Errorf("rejoin as %s: %w", name, err)
			}
			return r.id, value, nil
		}
		r.note(ctx, err)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if err == nil {
				err = fmt.Errorf("waiting for %d of the same name", len(r.seen))
			}
			return "", 0, fmt.Errorf("rejoin as %s: %w (%w)", name, ctx.Err(), err)
		}
	}
}

// rejoin is one Rejoin under way. The id stays the same over all tries: one
// whose reply was lost may already hold the lease.
type rejoin struct {
	leases *Leases
	name   string
	id     protocol.InstanceID
	own    []protocol.InstanceID
	seen   map[string]string // others that hold a lease: member to value at the last look
	state  string            // what note logged last
}

func (r *rejoin) try(ctx context.Context) (value int64, done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.leases.cfg.tryTimeout())
	defer cancel()
	reply, err := rejoinScript.Run(ctx, r.leases.rdb, []string{r.leases.key}, r.args()...).StringSlice()
	switch {
	case err != nil:
		return 0, false, err
	case len(reply) == 2 && reply[0] == "joined":
		value, err = parseMS(reply[1])
		return value, true, err
	case len(reply) == 2 && reply[0] == "superseded":
		return 0, true, fmt.Errorf("%w: %s is alive", ErrSuperseded, reply[1])
	case len(reply) > 2 && reply[0] == "wait":
		clear(r.seen)
		for i := 1; i+1 < len(reply); i += 2 {
			r.seen[reply[i]] = reply[i+1]
		}
		return 0, false, nil
	}
	return 0, true, fmt.Errorf("unknown reply %q", reply)
}

func (r *rejoin) args() []any {
	args := []any{prefix(r.name), string(r.id), r.leases.leaseMS(), len(r.own)}
	for _, id := range r.own {
		args = append(args, string(id))
	}
	for member, value := range r.seen {
		args = append(args, member, value)
	}
	return args
}

// note logs what is waited for, once a change.
func (r *rejoin) note(ctx context.Context, err error) {
	log, state := r.leases.cfg.Logger, "waiting"
	if err != nil {
		state = "trouble"
	}
	if state == r.state {
		return
	}
	r.state = state
	if err != nil {
		log.WarnContext(ctx, "rejoin is waiting for Redis", slog.String("name", r.name), slog.Any("error", err))
		return
	}
	for member := range r.seen {
		log.InfoContext(ctx, "rejoin is waiting for a lease of the same name to end",
			slog.String("name", r.name), slog.String("other", member))
	}
}
