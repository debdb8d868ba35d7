package relay

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// NotifierPrefix begins the names of notifiers, which keep their leases beside the
// relays' and hold no partitions.
const NotifierPrefix = "notifier:"

// outlook is what one look showed.
type outlook struct {
	at      time.Time // zero: there was none
	err     error     // why the last one failed
	relays  int       // that run, this one included
	sockets int       // socket servers that run
	owners  []owner   // by partition
}

// owner is who holds a partition.
type owner struct {
	ID      protocol.InstanceID
	Running bool // its lease runs, by Redis' clock
}

// keepLooking looks once a second at the relays, the partitions' leases and the
// socket servers, and takes or gives up partitions accordingly.
func (r *Relay) keepLooking(ctx context.Context, pool redis.UniversalClient) {
	members := heartbeat.New(pool, heartbeat.RelayInstances, r.cfg.pace())
	quiet := quietSince{}
	var bad trouble
	for {
		seen, err := r.look(ctx, pool, members)
		r.saw(seen, err)
		if err == nil {
			err = r.arrange(ctx, pool, seen, &quiet)
		}
		switch {
		case err == nil:
			bad.end(r.log, "look at leases")
		case ctx.Err() == nil:
			bad.begin(r.log, "look at leases", err)
		}
		if !pauseFor(ctx, r.cfg.Look) {
			return
		}
	}
}

// saw keeps the last look that succeeded, and whether the last one did.
func (r *Relay) saw(seen outlook, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.seen = seen
	}
	r.seen.err = err
}

func (r *Relay) look(ctx context.Context, pool redis.UniversalClient, members *heartbeat.Leases) (outlook, error) {
	seen := outlook{at: time.Now()}
	sockets, err := r.instances.look(ctx)
	if err != nil {
		return seen, err
	}
	seen.sockets = len(sockets)
	relays, err := members.List(ctx)
	if err != nil {
		return seen, err
	}
	for _, l := range relays {
		if l.Running && !strings.HasPrefix(l.ID.Name(), NotifierPrefix) {
			seen.relays++
		}
	}
	seen.relays = max(seen.relays, 1)
	if err := r.sweep(ctx, members, relays); err != nil {
		return seen, err
	}
	seen.owners, err = readOwners(ctx, pool, r.cfg.Partitions)
	return seen, err
}

// sweep removes the leases of relays that ended long ago, which nobody else does:
// there is nothing of theirs to move.
func (r *Relay) sweep(ctx context.Context, members *heartbeat.Leases, all []heartbeat.Lease) error {
	if !r.holds(0) {
		return nil
	}
	for _, l := range all {
		if l.Running || time.Since(l.Until) < 12*r.cfg.Lease {
			continue
		}
		if err := members.Remove(ctx, l.ID); err != nil {
			return err
		}
	}
	return nil
}

// readOwners reads the leases of partitions 0 … n-1.
func readOwners(ctx context.Context, rdb redis.UniversalClient, n int) ([]owner, error) {
	p := rdb.Pipeline()
	now := p.Time(ctx)
	cmds := make([]*redis.SliceCmd, n)
	for i := range n {
		cmds[i] = p.HMGet(ctx, partitionKey(i), "owner", "end")
	}
	if _, err := p.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read leases of partitions: %w", err)
	}
	owners := make([]owner, n)
	for i, c := range cmds {
		v := c.Val()
		if len(v) != 2 {
			continue
		}
		end, _ := strconv.ParseInt(asString(v[1]), 10, 64)
		owners[i] = owner{ID: protocol.InstanceID(asString(v[0])), Running: end > now.Val().UnixMilli()}
	}
	return owners, nil
}

// arrange takes free partitions up to this relay's share, and gives up what exceeds
// it. While the outbox is divided into another number of partitions it takes none.
func (r *Relay) arrange(ctx context.Context, pool redis.UniversalClient, seen outlook, quiet *quietSince) error {
	ready, err := r.agreed(ctx, pool, quiet)
	if err != nil || !ready {
		return err
	}
	share := (r.cfg.Partitions + seen.relays - 1) / seen.relays
	mine := r.holding()
	for ; len(mine) > share; mine = mine[:len(mine)-1] {
		r.giveUp(mine[len(mine)-1])
	}
	for n := 0; n < r.cfg.Partitions && len(mine) < share; n++ {
		if free := !seen.owners[n].Running || seen.owners[n].ID == r.owner(); free && !slices.Contains(mine, n) {
			r.hold(ctx, n)
			mine = append(mine, n)
		}
	}
	return nil
}

// holding answers the partitions that this relay holds or is about to.
func (r *Relay) holding() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	mine := make([]int, 0, len(r.held))
	for n := range r.held {
		mine = append(mine, n)
	}
	slices.Sort(mine)
	return mine
}

func (r *Relay) hold(ctx context.Context, n int) {
	p := newPartition(ctx, r, n)
	r.mu.Lock()
	r.held[n] = p
	r.mu.Unlock()
	r.work.Go(func() error {
		p.run()
		r.mu.Lock()
		delete(r.held, n)
		r.mu.Unlock()
		return nil
	})
}

// giveUp lets a partition go after the batch under way.
func (r *Relay) giveUp(n int) {
	r.mu.Lock()
	p := r.held[n]
	r.mu.Unlock()
	if p != nil {
		p.give(errSurplus)
	}
}
