package inbox

import (
	"context"
	"log/slog"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

// locate reads where each user is connected. A user whose key can't be read (it
// is of another type) counts as not connected.
func (m *move) locate(ctx context.Context) (map[protocol.UserID][]registry.Field, error) {
	users := m.users()
	fields := make(map[protocol.UserID][]registry.Field, len(users))
	err := inChunks(len(users), func(int) int { return 0 }, func(lo, hi int) error {
		p := m.rdb.Pipeline()
		cmds := make([]*registry.RouteCmd, 0, hi-lo)
		for _, u := range users[lo:hi] {
			cmds = append(cmds, m.reg.QueueLocate(ctx, p, u))
		}
		if _, err := p.Exec(ctx); redisconn.IsTrouble(err) {
			return err
		}
		for i, cmd := range cmds {
			routed, err := cmd.Result()
			if redisconn.IsTrouble(err) {
				return err
			}
			if err != nil {
				m.cfg.Logger.WarnContext(ctx, "a user's locations can't be read", slog.Any("error", err))
			}
			for _, l := range routed.Locations {
				fields[users[lo+i]] = append(fields[users[lo+i]], l.Field)
			}
		}
		return nil
	})
	return fields, err
}

func (m *move) users() []protocol.UserID {
	known := make(map[protocol.UserID]bool, len(m.ws))
	var users []protocol.UserID
	for _, w := range m.ws {
		if !known[w.Pair.User] {
			known[w.Pair.User] = true
			users = append(users, w.Pair.User)
		}
	}
	return users
}

// dropStale removes the fields of this instance that have no session: else
// relays would go on routing here, and the pair could come back. A session is in
// the hub before its field is written, so asking live after the look-up is safe.
func (m *move) dropStale(ctx context.Context, fields map[protocol.UserID][]registry.Field) error {
	return m.leave(ctx, fields, func(u protocol.UserID, f registry.Field) bool {
		return f.Instance == m.from && !slices.Contains(m.live(u), f.Session)
	})
}

// leaveGone removes the fields of users at instances that turned out to be gone.
func (m *move) leaveGone(ctx context.Context, fields map[protocol.UserID][]registry.Field, gone map[protocol.InstanceID]bool) error {
	if len(gone) == 0 {
		return nil
	}
	return m.leave(ctx, fields, func(_ protocol.UserID, f registry.Field) bool { return gone[f.Instance] })
}

func (m *move) leave(ctx context.Context, fields map[protocol.UserID][]registry.Field, which func(protocol.UserID, registry.Field) bool) error {
	type going struct {
		user   protocol.UserID
		fields []registry.Field
	}
	var all []going
	for u, fs := range fields {
		var some []registry.Field
		for _, f := range fs {
			if which(u, f) {
				some = append(some, f)
			}
		}
		if len(some) > 0 {
			all = append(all, going{u, some})
		}
	}
	return inChunks(len(all), func(int) int { return 0 }, func(lo, hi int) error {
		p := m.rdb.Pipeline()
		cmds := make([]*redis.IntCmd, 0, hi-lo)
		for _, g := range all[lo:hi] {
			cmds = append(cmds, m.reg.QueueLeave(ctx, p, g.user, g.fields...))
		}
		_, err := p.Exec(ctx)
		for _, cmd := range cmds {
			err = firstError(err, cmd.Err())
		}
		return err
	})
}

// places answers each user's instances elsewhere that hold a running lease.
func (m *move) places(ctx context.Context, fields map[protocol.UserID][]registry.Field) (map[protocol.UserID][]protocol.InstanceID, error) {
	var all []protocol.InstanceID
	known := map[protocol.InstanceID]bool{m.from: true}
	for _, fs := range fields {
		for _, f := range fs {
			if !known[f.Instance] {
				known[f.Instance] = true
				all = append(all, f.Instance)
			}
		}
	}
	running, err := m.leases.Running(ctx, all...)
	if err != nil {
		return nil, err
	}
	places := make(map[protocol.UserID][]protocol.InstanceID, len(fields))
	for u, fs := range fields {
		for _, f := range fs {
			if f.Instance != m.from && running[f.Instance] && !slices.Contains(places[u], f.Instance) {
				places[u] = append(places[u], f.Instance)
			}
		}
	}
	return places, nil
}

// One pipeline holds at most so many commands, and bytes before the last one.
const (
	chunkCommands = 256
	chunkBytes    = 1 << 20
)

// inChunks cuts 0…n into runs that each make one pipeline.
func inChunks(n int, size func(int) int, do func(lo, hi int) error) error {
	for lo := 0; lo < n; {
		hi := lo
		for bytes := 0; hi < n && hi-lo < chunkCommands && bytes < chunkBytes; hi++ {
			bytes += size(hi)
		}
		if err := do(lo, hi); err != nil {
			return err
		}
		lo = hi
	}
	return nil
}
