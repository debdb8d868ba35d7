package relay

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
)

var (
	// errStopped ends a tenure: the relay was asked to stop.
	errStopped = errors.New("relay stops")
	// errSurplus ends a tenure: other relays hold fewer partitions.
	errSurplus = errors.New("partition given up to another relay")
	// errOtherCount ends a tenure: the outbox is divided into another number of
	// partitions than this relay was started with.
	errOtherCount = errors.New("outbox has another number of partitions")
)

// stopGrace is how long a batch under way may take after the relay was asked to
// stop, the marker behind it included.
const stopGrace = 2 * time.Second

// partition is one partition as long as this relay holds it, or tries to: one
// tenure after another, until it is stopped, given up, or another relay's.
type partition struct {
	// fixed after construction
	r    *Relay
	n    int
	log  *slog.Logger
	stop context.Context // done when the relay stops or gives the partition up
	give context.CancelCauseFunc

	view partitionView // what Status and Ready show
}

func newPartition(ctx context.Context, r *Relay, n int) *partition {
	stop, give := context.WithCancelCause(ctx)
	return &partition{r: r, n: n, log: r.log.With(keyPartition, n), stop: stop, give: give}
}

// run holds the partition until it is given up. Trouble of Redis ends a tenure, and
// the next one begins at once, then with backoff.
func (p *partition) run() {
	defer p.give(errStopped)
	var back backoff
	var bad trouble
	for back.wait(p.stop) {
		began := time.Now()
		err := p.tenure()
		if p.over(err) {
			p.log.Info("partition is not ours now", keyReason, errText(err))
			return
		}
		p.view.trouble(err)
		p.r.metrics.breaks.Inc()
		bad.begin(p.log, "partition lost its connection or lease and is taken again", err)
		if time.Since(began) > p.r.cfg.Lease {
			back.reset()
			bad = trouble{}
		}
	}
}

// over says whether err leaves the partition to others.
func (p *partition) over(err error) bool {
	for _, end := range []error{errStopped, errSurplus, errHeld, errFenced, errOtherCount} {
		if errors.Is(err, end) {
			return true
		}
	}
	return p.stop.Err() != nil
}

// tenure is one holding of the lease over one connection.
func (p *partition) tenure() error {
	p.view.set(stateTaking)
	t, work := newTenure(p)
	defer t.close()
	defer t.graceful()()
	inRedis, err := t.acquire(work)
	if err != nil {
		return err
	}
	defer t.release()
	var renewals errgroup.Group
	renewals.Go(func() error { t.keepLease(work); return nil })
	err = t.settle(work, inRedis)
	if err == nil {
		err = t.serve(work)
	}
	cause := context.Cause(work)
	t.fail(errStopped)
	_ = renewals.Wait()
	return cmp.Or(cause, err)
}

// keepLease renews the lease until the work ends. The renewals are the pings, too,
// that find a broken connection of an idle partition.
func (t *tenure) keepLease(work context.Context) {
	for pauseFor(work, t.r.cfg.Renew) {
		ctx, cancel, err := t.lease.bound(work)
		if err == nil {
			err = t.lease.renew(ctx, t.conn)
			cancel()
		}
		if isBusy(err) {
			continue
		}
		if err := cmp.Or(t.broken(work, err), err); err != nil {
			t.fail(err)
			return
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
