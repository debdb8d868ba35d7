package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

// duty is one life of a notifier: what it holds, from a connection to its loss. One
// loop owns all of it; what takes time runs beside the loop and comes back to it as a
// function to apply.
type duty struct {
	// fixed after construction
	n        *Notifier
	cfg      NotifierConfig
	consumer string
	conn     redis.UniversalClient // the reader's
	streams  *inbox.Streams
	registry *registry.Registry
	end      context.CancelCauseFunc
	began    time.Time

	room    chan int    // to the reader: so many entries may come
	taken   chan taken  // from the reader
	applied chan func() // from what runs beside the loop

	// owned by run
	ctx      context.Context
	group    *errgroup.Group
	held     map[string]*holding
	bytes    int
	tasks    tasks
	again    time.Time // the gate is shut until then; zero: it is not
	pairs    int       // pairs under way
	beside   int       // all that is under way
	done     []string  // entries to settle
	settling bool
	renewing bool
	looking  bool
	stopping bool
	swept    time.Time
}

const (
	lookEvery  = 5 * time.Second
	sweepEvery = 10 * time.Minute
	settleMost = 200
	// downHeld is how many entries are held at the most while the sink takes nothing:
	// enough to ask it with.
	downHeld = 16
	leaveIn  = 2 * time.Second
)

func newDuty(n *Notifier, consumer string, reads, writes redis.UniversalClient, end context.CancelCauseFunc) *duty {
	d := &duty{
		n: n, cfg: n.cfg, consumer: consumer, conn: reads, end: end, began: time.Now(),
		registry: registry.New(writes, registry.Config{}),
		room:     make(chan int), taken: make(chan taken), applied: make(chan func()),
		held: make(map[string]*holding),
	}
	d.streams = inbox.New(writes, d.inboxConfig())
	return d
}

func (d *duty) inboxConfig() inbox.Config {
	return inbox.Config{Logger: d.cfg.Logger, Metrics: d.cfg.Metrics}
}

// clock is monotonic and starts with the duty.
func (d *duty) clock() time.Duration { return time.Since(d.began) }

// age is the time since an entry was known to be ours.
func (d *duty) age(h *holding) time.Duration { return d.clock() - time.Duration(h.fresh.Load()) }

// run works until ctx ends, whose cause it returns, or until stop ends and all that
// is under way is done (nil).
func (d *duty) run(ctx, stop context.Context) error {
	d.group, d.ctx = errgroup.WithContext(ctx)
	reading, stopReading := context.WithCancel(d.ctx)
	defer stopReading()
	defer context.AfterFunc(stop, stopReading)()
	read := make(chan struct{})
	d.group.Go(func() error {
		defer close(read)
		err := (&reader{d: d, conn: d.conn}).run(reading)
		if reading.Err() != nil {
			return nil
		}
		return err
	})
	err := d.loop(stop)
	stopReading()
	<-read
	if err == nil {
		err = d.leave()
	}
	d.end(err) // nobody waits for what is still beside the loop
	if wait := d.group.Wait(); err == nil {
		err = wait
	}
	d.forget()
	return err
}

func (d *duty) loop(stop context.Context) error {
	renew, look := time.NewTicker(d.cfg.Renew), time.NewTicker(lookEvery)
	defer renew.Stop()
	defer look.Stop()
	wake := time.NewTimer(0)
	defer wake.Stop()
	stopped, late := stop.Done(), (<-chan time.Time)(nil)
	d.look()
	for {
		d.dispatch()
		d.settle()
		d.n.stats.held.Store(int64(len(d.held)))
		if d.stopping && d.beside == 0 && len(d.done) == 0 {
			return nil
		}
		room, offer := d.offer()
		if at := d.nextDue(); !at.IsZero() {
			wake.Reset(time.Until(at))
		}
		select {
		case <-d.ctx.Done():
			return context.Cause(d.ctx)
		case <-stopped:
			d.stopping, stopped = true, nil
			late = time.After(d.cfg.SendTimeout + leaveIn)
		case <-late:
			return errors.New("stop notifier: what is under way does not end")
		case offer <- room:
		case t := <-d.taken:
			d.take(t)
		case apply := <-d.applied:
			d.beside--
			apply()
		case <-wake.C:
		case <-renew.C:
			d.renew()
			d.makeRoom()
		case <-look.C:
			d.look()
			d.expire()
		}
	}
}

// aside runs work beside the loop; the function it answers is applied in the loop. An
// error ends the life.
func (d *duty) aside(work func(ctx context.Context) (apply func(), err error)) {
	d.beside++
	d.group.Go(func() error {
		apply, err := work(d.ctx)
		if err != nil {
			d.end(err)
			return err
		}
		select {
		case d.applied <- apply:
		case <-d.ctx.Done():
		}
		return nil
	})
}

// offer is how many entries the reader may bring; a nil channel: none.
func (d *duty) offer() (int, chan<- int) {
	room := min(readMost, d.cfg.MaxHeld-len(d.held))
	if state, _ := d.n.gate.look(); state != SinkWell {
		room = min(room, downHeld-len(d.held))
	}
	if d.stopping || room <= 0 || d.bytes >= d.cfg.MaxHeldBytes {
		return 0, nil
	}
	return room, d.room
}

// take holds what was read.
func (d *duty) take(t taken) {
	now := time.Now()
	for _, raw := range t.raws {
		if h := d.held[raw.ID]; h != nil {
			h.fresh.Store(int64(t.asked))
			continue
		}
		if raw.Fields == nil {
			d.n.metrics.bodies.Inc()
			d.done = append(d.done, raw.ID)
			continue
		}
		note, err := inbox.DecodeNotification(raw)
		if err != nil {
			d.putAside(raw, err)
			continue
		}
		h, list := d.cfg.hold(raw, note, now)
		h.fresh.Store(int64(t.asked))
		d.held[h.id] = h
		d.bytes += h.size
		for _, task := range list {
			d.tasks.add(task, task.due)
		}
		d.review(h)
	}
}

// putAside keeps an entry that can't be decoded.
func (d *duty) putAside(raw inbox.Raw, cause error) {
	d.aside(func(ctx context.Context) (func(), error) {
		err := d.streams.ToDead(ctx, inbox.Notifications, cause.Error(), raw.ID, raw.Deliveries, raw.Fields)
		return func() { d.done = append(d.done, raw.ID) }, err
	})
}

// dispatch starts the tasks that are due.
func (d *duty) dispatch() {
	d.again = time.Time{}
	for d.pairs < d.cfg.Concurrency && !d.stopping {
		t, now := d.tasks.first(), time.Now()
		if t == nil || t.due.After(now) {
			return
		}
		send, again := d.n.gate.enter(now, d.pairs)
		if !send && now.Before(t.h.limit(d.cfg)) {
			d.again = later(again, now.Add(time.Millisecond))
			if again.IsZero() {
				d.again = now.Add(d.cfg.BackoffMost)
			}
			return
		}
		d.tasks.remove(t)
		d.start(t, send)
	}
}

func (d *duty) start(t *task, send bool) {
	if t.unwait() {
		t.h.active++
	}
	d.pairs++
	d.aside(func(ctx context.Context) (func(), error) {
		r := d.notify(ctx, t, send)
		return func() { d.pairs--; d.stepped(r) }, r.trouble
	})
}

// nextDue is when dispatch has something to do; zero: nothing is known.
func (d *duty) nextDue() time.Time {
	if d.pairs >= d.cfg.Concurrency || d.stopping {
		return time.Time{}
	}
	if !d.again.IsZero() {
		return d.again
	}
	if t := d.tasks.first(); t != nil {
		return t.due
	}
	return time.Time{}
}

// stepped goes on with a pair after a step.
func (d *duty) stepped(r result) {
	t, now := r.task, time.Now()
	t.h.active--
	switch {
	case r.outcome != pairWaits && r.outcome != pairFailed:
		d.n.metrics.pairs.WithLabelValues(string(r.outcome)).Inc()
	case t.h.gone:
	case r.outcome == pairWaits && r.gone:
		t.abandoned = r.entry
		d.later(t, now)
	case r.outcome == pairWaits:
		t.abandoned = inbox.Mark{}
		t.h.waits = append(t.h.waits, t)
		d.tasks.add(t, now.Add(d.cfg.WaitEvery))
	case !now.Before(t.h.limit(d.cfg)):
		t.h.dead = append(t.h.dead, t.pair)
	default:
		if !r.sinkDown {
			t.tries++
			t.failures++
		}
		d.later(t, now.Add(max(d.cfg.pause(t.failures), r.retry)))
	}
	d.review(t.h)
}

func (d *duty) later(t *task, due time.Time) {
	t.h.active++
	d.tasks.add(t, due)
}

// review sees whether anything of an entry is left to do.
func (d *duty) review(h *holding) {
	switch {
	case h.gone || h.active > 0:
	case len(h.dead) > 0:
		d.putDead(h)
	case len(h.waits) > 0:
		d.letGo(h)
	default:
		d.done = append(d.done, h.id)
		d.drop(h)
	}
}

func (d *duty) putDead(h *holding) {
	pairs := h.dead
	h.dead = nil
	h.active++
	d.aside(func(ctx context.Context) (func(), error) {
		err := d.bury(ctx, h, pairs)
		return func() { d.buried(h, pairs) }, err
	})
}

func (d *duty) buried(h *holding, pairs []protocol.Pair) {
	d.n.metrics.pairs.WithLabelValues(string(pairDead)).Add(float64(len(pairs)))
	d.n.log.Warn("gave notifications up, they are in the dead letters", keyEvent, h.note.Item.Event.ID.String(), keyCount, len(pairs))
	h.active--
	d.review(h)
}

// letGo holds an entry no longer, and does not settle it: it comes back by a claim.
func (d *duty) letGo(h *holding) {
	d.n.metrics.letGo.Inc()
	d.drop(h)
}

func (d *duty) drop(h *holding) {
	h.gone = true
	for _, t := range h.waits {
		d.tasks.remove(t)
	}
	h.waits = nil
	if d.held[h.id] == h {
		delete(d.held, h.id)
		d.bytes -= h.size
	}
}

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
