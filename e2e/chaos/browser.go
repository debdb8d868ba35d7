package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	firstWithin = 4 * time.Second // the first attempt's spread before there was a welcome
	backoffMost = 30 * time.Second
	stable      = 30 * time.Second
)

// browser is one page of one user: it keeps its position and what it has seen over any number of connections.
type browser struct {
	// fixed after construction
	name     string
	user     string
	token    string
	network  *network
	servers  []*node
	ledger   *ledger
	receiver *receiver
	began    time.Time // of the run

	// owned by the goroutine that is in run
	random *rand.Rand

	wake chan struct{} // the network is back: try now

	mu       sync.Mutex
	current  *conn
	spread   time.Duration
	attempt  int
	openedAt time.Time
	history  []string

	shown  []showing
	loaded bits // what page loads brought
	loads  []pageLoad
	acks   map[int]ackAt // by event, the first ack that covers it
	owing  []int         // events shown whose ack has not gone out, of this epoch
	epoch  string
	again  int // deliveries of what was seen before
	faults []string
}

// showing is the moment at which the application got an event.
type showing struct {
	n      int
	at     time.Time
	loaded bool // a page load had brought it before
	conn   *conn
}

// pageLoad is one that succeeded.
type pageLoad struct {
	welcome, at time.Time
	events      bits
}

type ackAt struct {
	at   time.Time
	conn *conn
}

// run keeps it connected until ctx ends.
func (b *browser) run(ctx context.Context, polite bool) {
	var group sync.WaitGroup
	defer group.Wait()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	group.Go(func() { b.receiver.run(inner, &group) })
	var current *conn
	for ctx.Err() == nil {
		if current == nil && !b.backOff(ctx) {
			break
		}
		next, err := b.open(inner, &group, current)
		if err != nil {
			b.note("no connection: %v", err)
			if current != nil && !current.live.Load() {
				current = nil
			}
			if current != nil && !pause(ctx, time.Second) {
				break
			}
			continue
		}
		current = next
		b.hold(current)
		if !b.serve(ctx, current) {
			current = nil
		}
	}
	b.hold(nil)
	if current == nil {
		return
	}
	if polite {
		current.bye()
	} else {
		current.close()
	}
	<-current.done
}

// serve waits until the connection is lost, or another is to be opened beside it: true.
func (b *browser) serve(ctx context.Context, c *conn) bool {
	select {
	case <-ctx.Done():
		return true
	case <-c.done:
		b.lost(c)
		return false
	case after := <-c.leave:
		b.note("goaway by %s: another connection in %s", c.server.name, short(after))
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return true
		case <-c.done:
			b.lost(c)
			return false
		}
	}
}

func (b *browser) lost(c *conn) {
	b.note("lost %s: %v", c.server.name, c.why)
	b.hold(nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.openedAt) >= stable {
		b.attempt = 0
	}
}

// backOff waits as the protocol asks: a random part of reconnectWithin, then full jitter, doubling.
func (b *browser) backOff(ctx context.Context) bool {
	b.mu.Lock()
	ceiling := min(b.spread<<min(b.attempt, 10), backoffMost)
	floor := time.Duration(0)
	if b.attempt > 0 {
		floor = min(100*ms, ceiling)
	}
	b.attempt++
	b.mu.Unlock()
	timer := time.NewTimer(floor + time.Duration(b.random.Int64N(int64(ceiling-floor)+1)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-b.wake:
		return true
	case <-ctx.Done():
		return false
	}
}

func (b *browser) within(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d > 0 {
		b.spread = d
	}
	b.openedAt = time.Now()
}

func (b *browser) hold(c *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current = c
}

// drop loses the connection, if there is one.
func (b *browser) drop() bool {
	b.mu.Lock()
	c := b.current
	b.mu.Unlock()
	if c == nil {
		return false
	}
	c.close()
	return true
}

// nudge has it try at once, as the browser's "online" does.
func (b *browser) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// show is the application's handler. One in a hundred takes a while.
func (b *browser) show(ctx context.Context, c *conn, one delivery) {
	e := b.ledger.find(one.Event.ID)
	if e == nil {
		b.fault("event %s that nobody published", one.Event.ID)
		return
	}
	b.mu.Lock()
	b.shown = append(b.shown, showing{n: e.n, at: time.Now(), loaded: b.loaded.has(e.n), conn: c})
	if one.Seq > 0 {
		b.owing = append(b.owing, e.n)
	}
	count := len(b.shown)
	b.mu.Unlock()
	if count%100 == 99 {
		pause(ctx, 300*ms)
	}
}

// welcomed notes a welcome; what was handled in another epoch is acked no more.
func (b *browser) welcomed(c *conn, f frame) {
	b.note("welcome %d by %s (%s): epoch %s seq %d recovered %v", f.N, c.server.name, f.Instance, f.Epoch, f.Seq, f.Recovered)
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.Epoch != b.epoch || !f.Recovered {
		b.owing = nil
	}
	b.epoch = f.Epoch
}

// load is the application's page load; false: it failed.
func (b *browser) load(ctx context.Context, since time.Time) bool {
	got, err := b.ledger.load(ctx)
	if err != nil {
		return false
	}
	b.mu.Lock()
	b.loaded.add(got)
	b.loads = append(b.loads, pageLoad{welcome: since, at: time.Now(), events: got})
	b.mu.Unlock()
	b.note("page loaded")
	return true
}

// acking takes what the ack that goes out now covers.
func (b *browser) acking() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.owing
	b.owing = nil
	return out
}

func (b *browser) acked(c *conn, events []int) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range events {
		if _, before := b.acks[n]; !before {
			b.acks[n] = ackAt{at: now, conn: c}
		}
	}
}

func (b *browser) repeated() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.again++
}

// fault notes what no server may do.
func (b *browser) fault(format string, args ...any) {
	b.note("FAULT "+format, args...)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, fmt.Sprintf("%7.2fs %s: ", time.Since(b.began).Seconds(), b.name)+fmt.Sprintf(format, args...))
}

// note keeps the history that is shown with a violation.
func (b *browser) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.history = append(b.history, fmt.Sprintf("%7.2fs ", time.Since(b.began).Seconds())+fmt.Sprintf(format, args...))
}
