package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
)

// makeRoom lets go, where the bound is reached, of entries that have failed and are
// not tried again soon: those behind them may do better. They are claimed again
// later. While the sink as a whole fails one try at a time is made, so each entry
// that was tried makes room for another.
func (d *duty) makeRoom() {
	if room, _ := d.offer(); room > 0 || d.stopping {
		return
	}
	state, _ := d.n.gate.look()
	if state == SinkDisabled {
		return
	}
	until := time.Now().Add(min(d.cfg.ClaimIdle, d.cfg.BackoffMost/4))
	failed := make(map[*holding]int, len(d.held))
	for _, t := range d.tasks {
		if t.tries > 0 && (state == SinkFailing || t.due.After(until)) {
			failed[t.h]++
		}
	}
	for h, n := range failed {
		if n == h.active && len(h.dead) == 0 {
			d.letGo(h)
		}
	}
}

// expire brings those to the front whose limit is past while the sink takes nothing:
// they don't wait for it.
func (d *duty) expire() {
	if state, _ := d.n.gate.look(); state == SinkWell || d.stopping {
		return
	}
	now := time.Now()
	var past []*task
	for _, t := range d.tasks {
		if !t.h.gone && !now.Before(t.h.limit(d.cfg)) {
			past = append(past, t)
		}
	}
	for _, t := range past {
		d.tasks.remove(t)
		d.tasks.add(t, t.h.note.At)
	}
}

// settle acknowledges entries that are done, many at a time.
func (d *duty) settle() {
	if d.settling || len(d.done) == 0 {
		return
	}
	ids := d.done[:min(len(d.done), settleMost)]
	d.done = d.done[len(ids):]
	d.settling = true
	d.aside(func(ctx context.Context) (func(), error) {
		return func() { d.settling = false }, d.streams.SettleNotifications(ctx, ids...)
	})
}

// renew keeps what is held, and finds out what isn't any more.
func (d *duty) renew() {
	if d.renewing || len(d.held) == 0 {
		return
	}
	ids := make([]string, 0, len(d.held))
	for id := range d.held {
		ids = append(ids, id)
	}
	d.renewing = true
	d.aside(func(ctx context.Context) (func(), error) {
		asked := d.clock()
		lost, err := d.streams.RenewNotifications(ctx, d.consumer, ids...)
		return func() { d.renewed(ids, lost, asked) }, err
	})
}

func (d *duty) renewed(ids, lost []string, asked time.Duration) {
	d.renewing = false
	for _, id := range lost {
		if h := d.held[id]; h != nil {
			d.n.log.Warn("a held entry is another's", "entry", id)
			d.drop(h)
		}
	}
	for _, id := range ids {
		if h := d.held[id]; h != nil {
			h.fresh.Store(int64(asked))
		}
	}
}

// look sees how much waits, and raises the alarms.
func (d *duty) look() {
	if d.looking {
		return
	}
	d.looking = true
	sweep := time.Since(d.swept) > sweepEvery
	d.aside(func(ctx context.Context) (func(), error) {
		b, err := d.streams.NotificationBacklog(ctx)
		if err == nil && sweep {
			_, err = d.streams.SweepNotifiers(ctx, "", sweepIdle)
		}
		return func() { d.looked(b, sweep) }, err
	})
}

func (d *duty) looked(b inbox.NotificationBacklog, swept bool) {
	d.looking = false
	if swept {
		d.swept = time.Now()
	}
	s := &d.n.stats
	waits := 0
	for _, h := range d.held {
		waits += len(h.waits)
	}
	s.waiting.Store(int64(waits))
	s.length.Store(b.Length)
	s.oldest.Store(0)
	if !b.Oldest.IsZero() {
		s.oldest.Store(b.Oldest.UnixMilli())
	}
	d.n.redisAnswered()
	s.tooMany.set(d.n.log, b.Length > d.cfg.MaxPending, fmt.Sprintf("more than %d entries wait for notification", d.cfg.MaxPending))
	last := time.UnixMilli(s.read.Load())
	s.unread.set(d.n.log, d.clock() > noReader && time.Since(last) > noReader, "no notification was read for a minute")
}

func (d *duty) forget() {
	d.n.stats.held.Store(0)
	d.n.stats.waiting.Store(0)
}

// leave gives back what is held, so that another takes it at once, and takes this
// notifier's name out of the group where it holds nothing more.
func (d *duty) leave() error {
	ctx, cancel := context.WithTimeout(d.ctx, leaveIn)
	defer cancel()
	if err := d.streams.ReturnNotifications(ctx, d.consumer); err != nil {
		return err
	}
	_, err := d.streams.SweepNotifiers(ctx, d.consumer, sweepIdle)
	return err
}
