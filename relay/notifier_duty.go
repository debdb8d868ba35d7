package relay

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
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
