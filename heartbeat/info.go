package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// InfoExpiry is how long a description lasts after the last Describe.
const InfoExpiry = time.Minute

// Info describes an instance, for people to look at. Nothing is decided by it.
type Info struct {
	Name, Address, Version string
	State                  string        // e.g. "ready", "draining"
	Started                time.Time     // ms
	Sessions               int           // connected now
	Lag                    time.Duration // of its inbox, ms
	Probe                  time.Time     // when a probe last came through; zero: none yet
}

func infoKey(id protocol.InstanceID) string { return "socket:instance:" + string(id) }

// Describe writes the instance's description, for InfoExpiry.
func (l *Leases) Describe(ctx context.Context, id protocol.InstanceID, info Info) error {
	_, err := l.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, infoKey(id),
			"name", info.Name, "address", info.Address, "version", info.Version, "state", info.State,
			"started", unixMS(info.Started), "sessions", info.Sessions,
			"lag", info.Lag.Milliseconds(), "probe", unixMS(info.Probe))
		p.PExpire(ctx, infoKey(id), InfoExpiry)
		return nil
	})
	if err != nil {
		return fmt.Errorf("describe %s: %w", id, err)
	}
	return nil
}

// Infos reads what Describe wrote; instances without a description are left out.
func (l *Leases) Infos(ctx context.Context, ids ...protocol.InstanceID) (map[protocol.InstanceID]Info, error) {
	infos := make(map[protocol.InstanceID]Info, len(ids))
	if len(ids) == 0 {
		return infos, nil
	}
	cmds := make([]*redis.MapStringStringCmd, len(ids))
	_, execErr := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			cmds[i] = p.HGetAll(ctx, infoKey(id))
		}
		return nil
	})
	var errs []error
	for i, id := range ids {
		fields, err := cmds[i].Result()
		if err != nil {
			errs = append(errs, fmt.Errorf("read description %s: %w", id, err))
		} else if len(fields) > 0 {
			infos[id] = parseInfo(fields)
		}
	}
	if execErr != nil && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("read descriptions: %w", execErr))
	}
	return infos, errors.Join(errs...)
}

// parseInfo reads what can be read: a field of a newer version that means
// something else shows as zero.
func parseInfo(f map[string]string) Info {
	sessions, _ := strconv.Atoi(f["sessions"])
	lag, _ := strconv.ParseInt(f["lag"], 10, 64)
	return Info{
		Name: f["name"], Address: f["address"], Version: f["version"], State: f["state"],
		Started: fromUnixMS(f["started"]), Sessions: sessions,
		Lag: time.Duration(lag) * time.Millisecond, Probe: fromUnixMS(f["probe"]),
	}
}

func unixMS(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromUnixMS(s string) time.Time {
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil || ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
