package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// The two sets of leases.
const (
	SocketInstances = "socket:instances" // socket servers
	RelayInstances  = "relay:instances"  // relays and notifiers
)

// ErrLost is returned by Beat and by Keeper.Run when the lease is no longer
// this instance's: it is missing, was claimed or superseded, or Redis went back
// to an older state. The instance has to fence: become a new one by Rejoin.
var ErrLost = errors.New("lease lost")

// ErrSuperseded is returned by Rejoin when another process of the same name is
// alive and holds the lease: this one has to end.
var ErrSuperseded = errors.New("another process of the same name took over")

// Leases are the leases of one set of instances. Its methods may be called at
// the same time.
type Leases struct {
	// fixed after construction
	rdb redis.UniversalClient
	key string
	cfg Config
}

// New returns the leases kept under key. It does no I/O.
func New(rdb redis.UniversalClient, key string, cfg Config) *Leases {
	return &Leases{rdb: rdb, key: key, cfg: cfg.withDefaults()}
}

// Lease is one instance's lease as listed.
type Lease struct {
	ID      protocol.InstanceID
	Until   time.Time // by Redis' clock; zero: claimed by a reaper, superseded or ended
	Running bool      // by Redis' own clock at the listing
	Score   int64     // the value as stored (ms), for Claim
}

// Register makes a new instance of the name and gives it a lease: what a start
// does. Instances of the same name are superseded: their leases are set to 0,
// so that they end at their next beat and a reaper moves their entries at once.
// It answers the new id and the lease's value, the first Beat's last.
//
// Register may be called again after an error: an instance that a lost reply
// left behind is superseded by the next.
func (l *Leases) Register(ctx context.Context, name string) (protocol.InstanceID, int64, error) {
	if _, err := protocol.ParseInstanceName(name); err != nil {
		return "", 0, fmt.Errorf("register instance: %w", err)
	}
	id := protocol.NewInstanceID(name)
	reply, err := registerScript.Run(ctx, l.rdb, []string{l.key}, prefix(name), string(id), l.leaseMS()).StringSlice()
	if err != nil {
		return "", 0, fmt.Errorf("register instance %s: %w", name, err)
	}
	if len(reply) == 0 {
		return "", 0, fmt.Errorf("register instance %s: empty reply", name)
	}
	value, err := parseMS(reply[0])
	if err != nil {
		return "", 0, fmt.Errorf("register instance %s: %w", name, err)
	}
	for i := 1; i+1 < len(reply); i += 2 {
		if reply[i+1] == "1" {
			l.cfg.Logger.WarnContext(ctx, "superseded a running instance of the same name",
				slog.String("superseded", reply[i]), slog.String("instance", string(id)))
		} else {
			l.cfg.Logger.InfoContext(ctx, "superseded an earlier instance of the same name",
				slog.String("superseded", reply[i]), slog.String("instance", string(id)))
		}
	}
	return id, value, nil
}

// Beat puts the lease's end off and answers its new value, to be given as last
// the next time. It returns ErrLost if the lease is missing, was claimed or
// superseded, or stands lower than last: Redis went back. A greater value is a
// beat of ours whose reply was lost. A lease that ended unclaimed goes on.
func (l *Leases) Beat(ctx context.Context, id protocol.InstanceID, last int64) (int64, error) {
	value, _, err := l.beat(ctx, id, last)
	return value, err
}

// beat also answers Redis' time at the beat.
func (l *Leases) beat(ctx context.Context, id protocol.InstanceID, last int64) (value, now int64, err error) {
	reply, err := beatScript.Run(ctx, l.rdb, []string{l.key}, string(id), last, l.leaseMS()).StringSlice()
	if err != nil {
		return 0, 0, fmt.Errorf("beat %s: %w", id, err)
	}
	switch {
	case len(reply) == 3 && reply[0] == "beat":
		value, err = parseMS(reply[1])
		if err == nil {
			now, err = parseMS(reply[2])
		}
		if err != nil {
			return 0, 0, fmt.Errorf("beat %s: %w", id, err)
		}
		return value, now, nil
	case len(reply) == 1 && reply[0] == "missing":
		return 0, 0, fmt.Errorf("beat %s: %w: it is missing", id, ErrLost)
	case len(reply) == 1 && reply[0] == "claimed":
		return 0, 0, fmt.Errorf("beat %s: %w: it was claimed by a reaper or superseded", id, ErrLost)
	case len(reply) == 2 && reply[0] == "back":
		return 0, 0, fmt.Errorf("beat %s: %w: Redis went back from %d to %s", id, ErrLost, last, reply[1])
	}
	return 0, 0, fmt.Errorf("beat %s: unknown reply %q", id, reply)
}

// Claim takes an ended lease for reaping, if it still has the value that was
// seen (Lease.Score): from then on its instance is lost and can't come back. A
// lease seen at 0 may be claimed again, since a reaper may have died.
func (l *Leases) Claim(ctx context.Context, id protocol.InstanceID, seen int64) (bool, error) {
	n, err := claimScript.Run(ctx, l.rdb, []string{l.key}, string(id), seen).Int()
	if err != nil {
		return false, fmt.Errorf("claim %s: %w", id, err)
	}
	return n == 1, nil
}

// End ends a lease by setting it to 0, also where it is missing, so that a
// reaper takes what is left under the id.
func (l *Leases) End(ctx context.Context, id protocol.InstanceID) error {
	if err := l.rdb.ZAdd(ctx, l.key, redis.Z{Score: 0, Member: string(id)}).Err(); err != nil {
		return fmt.Errorf("end lease %s: %w", id, err)
	}
	return nil
}

// Remove gives a lease up with nothing left behind: the last step of a drain
// and of a reaper. The instance's description goes first.
func (l *Leases) Remove(ctx context.Context, id protocol.InstanceID) error {
	if err := l.rdb.Del(ctx, infoKey(id)).Err(); err != nil {
		return fmt.Errorf("remove description %s: %w", id, err)
	}
	if err := l.rdb.ZRem(ctx, l.key, string(id)).Err(); err != nil {
		return fmt.Errorf("remove lease %s: %w", id, err)
	}
	return nil
}

// List answers all leases, the earliest end first; members that are no instance
// ids are left out.
func (l *Leases) List(ctx context.Context) ([]Lease, error) {
	reply, err := listScript.Run(ctx, l.rdb, []string{l.key}).StringSlice()
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	if len(reply)%2 != 1 {
		return nil, fmt.Errorf("list leases: reply of %d elements", len(reply))
	}
	now, err := parseMS(reply[0])
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	leases := make([]Lease, 0, len(reply)/2)
	for i := 1; i < len(reply); i += 2 {
		id, err := protocol.ParseInstanceID(reply[i])
		if err != nil {
			continue
		}
		score, err := parseMS(reply[i+1])
		if err != nil {
			return nil, fmt.Errorf("list leases: %s: %w", id, err)
		}
		leases = append(leases, newLease(id, score, now))
	}
	return leases, nil
}

func newLease(id protocol.InstanceID, score, now int64) Lease {
	lease := Lease{ID: id, Running: score > now, Score: score}
	if score != 0 {
		lease.Until = time.UnixMilli(score)
	}
	return lease
}

// Running answers which of the instances hold a lease that runs, by Redis' own
// clock. Every id asked for is in the answer.
func (l *Leases) Running(ctx context.Context, ids ...protocol.InstanceID) (map[protocol.InstanceID]bool, error) {
	if len(ids) == 0 {
		return map[protocol.InstanceID]bool{}, nil
	}
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = string(id)
	}
	reply, err := runningScript.Run(ctx, l.rdb, []string{l.key}, args...).Int64Slice()
	if err != nil {
		return nil, fmt.Errorf("look up leases: %w", err)
	}
	if len(reply) != len(ids) {
		return nil, fmt.Errorf("look up leases: %d answers for %d instances", len(reply), len(ids))
	}
	running := make(map[protocol.InstanceID]bool, len(ids))
	for i, id := range ids {
		running[id] = reply[i] == 1
	}
	return running, nil
}

func (l *Leases) leaseMS() int64 { return l.cfg.Lease.Milliseconds() }

func prefix(name string) string { return name + "-" }

// parseMS reads a score: Redis writes doubles, and somebody may have put
// anything there by hand.
func parseMS(s string) (int64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) {
		return 0, fmt.Errorf("parse milliseconds %q: not a number", s)
	}
	return int64(min(max(f, -1<<53), 1<<53)), nil
}
