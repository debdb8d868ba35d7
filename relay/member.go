package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// belong keeps this relay's lease among the relays, by which they share out the
// partitions. A lost one (Redis went back, or was empty) is replaced; the leases of
// partitions are not touched by that. Another start under the same name ends this
// relay.
func (r *Relay) belong(ctx context.Context, joined func()) error {
	conn := r.redis.Conn(nil)
	defer conn.Close()
	leases := heartbeat.New(conn, heartbeat.RelayInstances, r.cfg.pace())
	id, value, err := r.join(ctx, leases)
	for err == nil {
		r.mu.Lock()
		r.ids = append(r.ids, id)
		r.mu.Unlock()
		joined()
		if err = leases.Keep(id, value, nil, nil).Run(ctx); err == nil {
			return r.quit(leases, id)
		}
		id, value, err = leases.Rejoin(ctx, r.cfg.Name, r.own()...)
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("keep relay's lease: %w", err)
}

// join registers as soon as Redis can be reached.
func (r *Relay) join(ctx context.Context, leases *heartbeat.Leases) (protocol.InstanceID, int64, error) {
	var back backoff
	var bad trouble
	for back.wait(ctx) {
		id, value, err := leases.Register(ctx, r.cfg.Name)
		if err == nil {
			return id, value, nil
		}
		bad.begin(r.log, "register relay", err)
	}
	return "", 0, context.Cause(ctx)
}

func (r *Relay) own() []protocol.InstanceID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]protocol.InstanceID(nil), r.ids...)
}

// quit gives the lease up, so that the others share out at once.
func (r *Relay) quit(leases *heartbeat.Leases, id protocol.InstanceID) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := leases.Remove(ctx, id); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		r.log.Debug("relay's lease was not given up, it ends by itself", keyError, err)
	}
	return nil
}
