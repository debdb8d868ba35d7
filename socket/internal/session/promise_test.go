package session_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
	"github.com/lastmile-gateway/lastmile/socket/internal/session"
)

// promise is a user with one device, against one session at a time. Redis goes back to older states,
// relays route again and in another order, connections drop with frames and acks under way, scripts
// fail. What must hold at every moment: a settled pair was seen by the application, or was committed
// before a load that the application did since. And at the end: nothing is lost, nothing shown twice.
type promise struct {
	*world
	rt *rapid.T
	s  *sess
	n  int // sessions so far

	committed int // events are named by their number
	dumps     []log
	inbox     []pending // stage 2 done, not read
	pairs     []*pair   // read
	notified  map[string]bool

	// the application
	shown    []string
	handled  map[string]bool
	loaded   int // all events with a lower number came with a load
	position *protocol.Position
	reload   bool // owed

	// the connection
	toClient []frame
	acks     []frame // N and Seq
	current  int64

	// under way
	writing *session.Writing // a frame that the client may have, of which the writer does not know yet
	script  *session.Script  // it ran, and its answer has not come
	answer  session.Answer
}

type pending struct {
	name string
	pair protocol.Pair
}

// pair is a ticket that knows what settling it means.
type pair struct {
	p       *promise
	name    string
	settled bool
}

func (t *pair) Settle() {
	t.settled = true
	if !t.p.has(t.name) && !t.p.waits(t.name) {
		t.p.rt.Errorf("%s was settled, and the application does not have it", t.name)
	}
}

// waits says whether another pair of the event is under way: when Redis went back past the epoch of one, the
// relay has routed it again.
func (p *promise) waits(name string) bool {
	return slices.ContainsFunc(p.inbox, func(e pending) bool { return e.name == name }) ||
		slices.ContainsFunc(p.pairs, func(t *pair) bool { return t.name == name && !t.settled })
}

func (p *promise) has(name string) bool { return p.handled[name] || number(name) < p.loaded }

func number(name string) (n int) {
	_, _ = fmt.Sscanf(name, "e%d", &n)
	return n
}

func TestPromise(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		p := &promise{world: newWorld(t), rt: rt, handled: map[string]bool{}, notified: map[string]bool{}}
		p.connect()
		rt.Repeat(map[string]func(*rapid.T){
			"commit":    func(*rapid.T) { p.commit() },
			"inbox":     func(*rapid.T) { p.readInbox() },
			"reorder":   func(*rapid.T) { p.reroute(true) },
			"script":    func(*rapid.T) { p.s.one() },
			"scripts":   func(*rapid.T) { p.scripts() },
			"start":     func(*rapid.T) { p.start() },
			"finish":    func(*rapid.T) { p.finish() },
			"write":     func(*rapid.T) { p.write() },
			"written":   func(*rapid.T) { p.written() },
			"handle":    func(*rapid.T) { p.handle() },
			"load":      func(*rapid.T) { p.load() },
			"ack":       func(*rapid.T) { p.deliverAck() },
			"dump":      func(*rapid.T) { p.dumps = append(p.dumps, p.log.copy()) },
			"goBack":    func(*rapid.T) { p.goBack() },
			"lose":      func(*rapid.T) { p.log = p.fresh(); p.refresh(); p.reroute(false) },
			"reconnect": func(*rapid.T) { p.drop(); p.connect() },
			"fence":     func(*rapid.T) { p.fence() },
			"trim":      func(*rapid.T) { p.trim() },
			"refresh":   func(*rapid.T) { p.refresh() },
			"fail":      func(*rapid.T) { p.down = true; p.s.one(); p.down = false; p.s.now = p.s.now.Add(3 * time.Second) },
		})
		p.settle()
	})
}

func (p *promise) connect() {
	p.n++
	opts := []option{func(_ *session.Config, c *session.Client) {
		c.At.Session = protocol.SessionID(fmt.Sprintf("session%05d", p.n))
	}}
	if p.position != nil && !p.reload {
		opts = append(opts, resume(*p.position))
	}
	p.s = p.session(opts...)
	p.toClient, p.acks, p.current, p.writing = nil, nil, 0, nil
}

// start runs a script of which the answer comes at finish: all kinds of things happen in between.
func (p *promise) start() {
	if sc := p.s.m.Script(p.s.now); sc != nil {
		p.script, p.answer = sc, p.run(sc)
	}
}

func (p *promise) finish() {
	if p.script != nil {
		p.s.m.Done(p.s.now, p.script, p.answer)
		p.script = nil
	}
}

func (p *promise) scripts() {
	p.finish()
	p.s.scripts()
}

// drop ends the connection: what the session held goes to notifications.
func (p *promise) drop() {
	for _, t := range p.s.m.End(p.s.now) {
		if pr := t.(*pair); !pr.settled {
			p.notified[pr.name] = true
		}
	}
	p.scripts()
	for _, e := range p.inbox {
		p.notified[e.name] = true
	}
	p.inbox, p.pairs = nil, nil
}

func (p *promise) commit() {
	name := fmt.Sprintf("e%d", p.committed)
	p.committed++
	p.event(name)
	p.routeOne(name)
}

func (p *promise) routeOne(name string) {
	online := len(p.fields) > 0
	pr := p.append(name)
	if online {
		p.inbox = append(p.inbox, pending{name, pr})
	} else {
		p.notified[name] = true
	}
}

// reroute is what a relay does after trouble: it goes back some way, and carefully appends what the
// log does not hold. Of two partitions (odd and even numbers) each keeps its own order; with a third one a
// client's position can tell less: see doc.go.
func (p *promise) reroute(swap bool) {
	var missing []string
	for i := range p.committed {
		name := fmt.Sprintf("e%d", i)
		at := slices.Index(p.log.ids, p.event(name).ID)
		switch {
		case at < 0:
			missing = append(missing, name)
		case len(p.fields) > 0:
			p.inbox = append(p.inbox, pending{name, protocol.Pair{User: "u", Epoch: p.log.epoch, Seq: p.log.base + protocol.Seq(at)}})
		}
	}
	if swap {
		slices.SortStableFunc(missing, func(a, b string) int { return number(b)%2 - number(a)%2 })
	}
	for _, name := range missing {
		p.routeOne(name)
	}
}

func (p *promise) readInbox() {
	if len(p.inbox) == 0 {
		return
	}
	e := p.inbox[0]
	p.inbox = p.inbox[1:]
	t := &pair{p: p, name: e.name}
	p.pairs = append(p.pairs, t)
	p.s.m.Push(p.s.now, session.Delivery{Event: p.event(e.name), Pair: e.pair, Ticket: t})
}

func (p *promise) write() {
	p.written()
	var ef protocol.EventsFrame
	b, w := p.s.m.Take(p.s.now, &ef)
	if b == nil {
		return
	}
	p.toClient = append(p.toClient, decodeFrame(p.rt, b))
	p.writing = &w
}

func (p *promise) written() {
	if p.writing != nil {
		p.s.m.Written(p.s.now, *p.writing)
		p.writing = nil
	}
}

// handle is the client: one frame.
func (p *promise) handle() {
	if len(p.toClient) == 0 {
		return
	}
	f := p.toClient[0]
	p.toClient = p.toClient[1:]
	if f.Type == "welcome" {
		if f.N != p.current+1 {
			p.rt.Errorf("welcome %d after %d", f.N, p.current)
		}
		p.current, p.position = f.N, &protocol.Position{Epoch: f.Epoch, Seq: f.Seq, ID: f.ID}
		p.reload = p.reload || !f.Recovered
		p.ack()
		return
	}
	for _, e := range f.Events {
		if want := p.position.Seq + 1; e.Seq < want {
			p.rt.Errorf("seq %d after %d", e.Seq, p.position.Seq)
		}
		name := e.Event.ID
		if !p.handled[name] {
			if number(name) < p.loaded-1000 {
				p.rt.Errorf("%s was shown long after it was loaded", name)
			}
			p.handled[name] = true
			p.shown = append(p.shown, name)
		}
		p.position.Seq, p.position.ID = e.Seq, p.event(name).ID
	}
	p.ack()
}

func (p *promise) load() {
	if p.reload {
		p.loaded, p.reload = p.committed, false
		p.ack()
	}
}

func (p *promise) ack() {
	if !p.reload && p.current > 0 {
		p.acks = append(p.acks, frame{N: p.current, Seq: p.position.Seq})
	}
}

func (p *promise) deliverAck() {
	if len(p.acks) > 0 {
		p.s.ack(p.acks[0].N, p.acks[0].Seq)
		p.acks = p.acks[1:]
	}
}

// goBack restores a dump. Lost connections are dialled anew, so sessions refresh before any further
// pair, and a relay routes again.
func (p *promise) goBack() {
	if len(p.dumps) == 0 {
		return
	}
	p.log = p.dumps[rapid.IntRange(0, len(p.dumps)-1).Draw(p.rt, "dump")].copy()
	p.inbox = nil // its entries may be gone too: routed again
	p.refresh()
	p.reroute(rapid.Bool().Draw(p.rt, "swap"))
}

func (p *promise) refresh() { p.s.m.Refresh(p.s.now) }

func (p *promise) trim() {
	if n := len(p.log.ids); n > 4 {
		p.log.base += protocol.Seq(n - 4)
		p.log.ids = slices.Clone(p.log.ids[n-4:])
	}
}

// fence: what was read and unread in the old inbox is a reaper's, who gives it to the new one.
func (p *promise) fence() {
	p.pairs = nil
	p.s.m.Rehome(p.s.now, protocol.InstanceID(fmt.Sprintf("a-%012d", p.n*1000+p.committed+len(p.ran))))
	if rapid.Bool().Draw(p.rt, "at once") {
		p.scripts()
	}
	p.reroute(false)
}

// settle lets all come to rest; then nothing may be missing.
func (p *promise) settle() {
	for range 5 {
		for len(p.inbox) > 0 {
			p.readInbox()
		}
		p.refresh()
		p.scripts()
		p.load()
		for p.s.m.Pending() || len(p.toClient) > 0 || len(p.acks) > 0 {
			p.write()
			p.handle()
			p.load()
			p.deliverAck()
			p.scripts()
		}
	}
	p.written()
	p.s.wait(25 * time.Second) // nothing is waited for any more
	for i := range p.committed {
		if name := fmt.Sprintf("e%d", i); !p.has(name) && !p.notified[name] {
			p.rt.Errorf("%s is lost: log %v", name, p.log)
		}
	}
	if _, closed := p.s.m.Closed(); closed {
		p.rt.Errorf("the session was closed")
	}
	if !p.fields[registry.Field{Instance: p.s.m.At().Instance, Session: p.s.m.At().Session}] {
		p.rt.Errorf("not registered")
	}
}
