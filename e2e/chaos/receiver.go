package main

import (
	"context"
	"sync"
	"time"
)

const (
	seenMost = 2048 // ids remembered; the protocol asks for 1,024
	ackEvery = time.Second
)

// receiver is the client's half of the protocol: positions, duplicates, reloads, acks. One queue for all
// connections of a browser, so what one event's handler does is done before the next is handed over.
type receiver struct {
	// fixed after construction
	browser *browser
	queue   chan arrived

	mu     sync.Mutex
	at     *position
	reload *struct{ _ byte } // the one that is owed: until then there are no acks, and no resume
	newest *conn
	seen   map[string]bool
	order  []string // of seen
}

type arrived struct {
	conn  *conn
	frame frame
}

func newReceiver(b *browser) *receiver {
	return &receiver{browser: b, queue: make(chan arrived, 256), seen: map[string]bool{}}
}

// resume is where a new connection resumes; nil: nowhere, also while a reload is owed.
func (r *receiver) resume() *position {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reload != nil || r.at == nil {
		return nil
	}
	at := *r.at
	return &at
}

func (r *receiver) push(c *conn, f frame) {
	select {
	case r.queue <- arrived{c, f}:
	case <-c.ctx.Done():
	}
}

// run handles what arrives until ctx ends.
func (r *receiver) run(ctx context.Context, group *sync.WaitGroup) {
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-r.queue:
			if next.conn.live.Load() {
				r.handle(ctx, group, next.conn, next.frame)
			}
		}
	}
}

func (r *receiver) handle(ctx context.Context, group *sync.WaitGroup, c *conn, f frame) {
	if f.Type == "welcome" {
		r.welcome(ctx, group, c, f)
	}
	for _, one := range f.Events {
		if r.fresh(c, one) {
			r.browser.show(ctx, c, one)
		}
		if !c.live.Load() {
			return // ended late: the next connection brings it again, and acks it
		}
		r.handled(c, one)
	}
	r.ack(c)
}

func (r *receiver) welcome(ctx context.Context, group *sync.WaitGroup, c *conn, f frame) {
	r.mu.Lock()
	if f.N != c.n+1 {
		r.browser.fault("welcome %d comes after %d", f.N, c.n)
	}
	if f.User != r.browser.user {
		r.browser.fault("a welcome for %q", f.User)
	}
	if f.Recovered && c.n == 0 && (c.resume == nil || f.position != *c.resume) {
		r.browser.fault("recovered at %v, asked to resume from %v", f.position, c.resume)
	}
	r.newest = c
	c.n, c.epoch, c.handled, c.acked = f.N, f.Epoch, f.Seq, -1
	at := f.position
	r.at = &at
	var owed *struct{ _ byte }
	if !f.Recovered {
		owed = new(struct{ _ byte })
		r.reload = owed
	}
	r.mu.Unlock()
	r.browser.welcomed(c, f)
	if owed != nil {
		group.Go(func() { r.resync(ctx, owed, time.Now()) })
	}
}

// resync has the page loaded, again and again until it is.
func (r *receiver) resync(ctx context.Context, owed *struct{ _ byte }, since time.Time) {
	for !r.browser.load(ctx, since) {
		if !pause(ctx, time.Second) {
			return
		}
	}
	r.mu.Lock()
	if r.reload != owed {
		r.mu.Unlock()
		return // a later welcome wants one of its own
	}
	r.reload = nil
	newest := r.newest
	r.mu.Unlock()
	if newest != nil {
		r.ack(newest)
	}
}

// fresh says whether an event is to be shown.
func (r *receiver) fresh(c *conn, one delivery) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := one.Event.ID
	if one.Seq > 0 && one.Seq <= c.handled {
		r.browser.fault("seq %d comes after %d", one.Seq, c.handled)
	}
	if r.seen[id] {
		r.browser.repeated()
		return false
	}
	r.seen[id] = true
	r.order = append(r.order, id)
	if len(r.order) > seenMost {
		delete(r.seen, r.order[0])
		r.order = r.order[1:]
	}
	return true
}

func (r *receiver) handled(c *conn, one delivery) {
	if one.Seq == 0 {
		return
	}
	r.mu.Lock()
	c.handled = one.Seq
	r.at = &position{Epoch: c.epoch, Seq: one.Seq, ID: one.Event.ID}
	due := time.Since(c.ackedAt) >= ackEvery
	r.mu.Unlock()
	if due {
		r.ack(c)
	}
}

// ack acknowledges what was handled on a connection, unless a reload is owed.
func (r *receiver) ack(c *conn) {
	r.mu.Lock()
	if r.reload != nil || !c.live.Load() || c.handled <= c.acked {
		r.mu.Unlock()
		return
	}
	c.acked, c.ackedAt = c.handled, time.Now()
	frame := map[string]any{"type": "ack", "n": c.n, "seq": c.handled}
	r.mu.Unlock()
	settled := r.browser.acking()
	if c.write(frame) == nil {
		r.browser.acked(c, settled)
	}
}
