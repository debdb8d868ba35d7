package heartbeat

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// Keeper beats one lease.
type Keeper struct {
	// fixed after construction
	leases   *Leases
	id       protocol.InstanceID
	alive    func() bool
	onResume func()

	// owned by Run
	value int64  // the last one confirmed
	state string // what was logged last

	mu       sync.Mutex
	lastBeat time.Time // guarded by mu
}

// Keep returns the keeper of a lease that Register or Rejoin just gave. It
// starts nothing: call Run.
//
// alive (nil: always) is asked before each beat; false: no beat now, so that an
// instance which does not get on loses its lease. onResume (nil: none) is
// called when the lease had ended, unclaimed, before a beat was confirmed:
// others may have taken this instance for dead meanwhile, so everything has to
// be refreshed. It is called from Run's goroutine and must not block.
func (l *Leases) Keep(id protocol.InstanceID, value int64, alive func() bool, onResume func()) *Keeper {
	if alive == nil {
		alive = func() bool { return true }
	}
	if onResume == nil {
		onResume = func() {}
	}
	return &Keeper{leases: l, id: id, alive: alive, onResume: onResume, value: value, lastBeat: time.Now()}
}

// Run beats at once and then every Config.Every until ctx ends (nil) or the
// lease is lost (ErrLost). Trouble with Redis is waited out: LastBeat tells
// since when. The lease itself is left as it is.
func (k *Keeper) Run(ctx context.Context) error {
	ticker := time.NewTicker(k.leases.cfg.Every)
	defer ticker.Stop()
	for {
		if err := k.beat(ctx); errors.Is(err, ErrLost) {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// LastBeat is when the last confirmed beat was sent; before the first one, when
// the keeper was made.
func (k *Keeper) LastBeat() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lastBeat
}

func (k *Keeper) beat(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	if !k.alive() {
		k.note(ctx, "stopped", nil)
		return nil
	}
	sent := time.Now()
	try, cancel := context.WithTimeout(ctx, k.leases.cfg.tryTimeout())
	defer cancel()
	value, now, err := k.leases.beat(try, k.id, k.value)
	if err != nil {
		if !errors.Is(err, ErrLost) && ctx.Err() == nil {
			k.note(ctx, "trouble", err)
		}
		return err
	}
	k.note(ctx, "beating", nil)
	// Not "had it ended at this beat": a beat in between, whose reply was lost,
	// may have picked the ended lease up unseen.
	ended := k.value <= now
	k.value = value
	k.mu.Lock()
	k.lastBeat = sent
	k.mu.Unlock()
	if ended {
		k.leases.cfg.Logger.WarnContext(ctx, "the lease had ended and goes on", slog.String("instance", string(k.id)))
		k.onResume()
	}
	return nil
}

// note logs changes of state, not tries.
func (k *Keeper) note(ctx context.Context, state string, err error) {
	before := k.state
	if state == before {
		return
	}
	k.state = state
	log, id := k.leases.cfg.Logger, slog.String("instance", string(k.id))
	switch {
	case state == "trouble":
		log.WarnContext(ctx, "beats do not reach Redis", id, slog.Any("error", err))
	case state == "stopped":
		log.WarnContext(ctx, "no beat: this instance makes no progress", id)
	case before != "":
		log.InfoContext(ctx, "beating again", id)
	}
}
