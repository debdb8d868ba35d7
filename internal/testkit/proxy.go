package testkit

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Direction is that of bytes through a Proxy.
type Direction int

const (
	// ToServer is from the client that connected to the target.
	ToServer Direction = iota
	// ToClient is the way back.
	ToClient
)

// Proxy passes TCP connections on to a target, and breaks them as a network would. Its faults hold for
// the connections there are and for new ones, until Heal. It ends with its test.
type Proxy struct {
	target   string
	listener net.Listener
	pumps    sync.WaitGroup

	mu      sync.Mutex
	faults  faults
	changed chan struct{} // closed, and replaced, at each change of faults
	links   map[*link]struct{}
	closed  bool
}

// faults are what a pump looks at before it passes bytes on.
type faults struct {
	delay   time.Duration
	hold    bool         // nothing passes, nothing is lost
	drop    [2]bool      // by direction: what passes is lost
	refuse  bool         // new connections are reset
	swallow *swallowOnce // nil: none
}

// swallowOnce takes a reply: that to the request which armed it, or the next of any.
type swallowOnce struct {
	match []byte // what the request has in it; nil: any reply will do
	link  *link  // that saw the request; nil: none yet
	done  chan struct{}
}

// NewProxy listens on a loopback address and passes connections on to target, "host:port".
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for proxy: %v", err)
	}
	p := &Proxy{target: target, listener: l, changed: make(chan struct{}), links: map[*link]struct{}{}}
	p.pumps.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr is where clients connect, "host:port".
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut resets all connections there are. New ones pass.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked(func(*link) bool { return true })
}

// Refuse resets all connections and every new one, as a server that is down.
func (p *Proxy) Refuse() {
	p.set(func(f *faults) { f.refuse = true })
	p.Cut()
}

// Delay holds up each read's bytes by d, in both directions. 0: no more.
func (p *Proxy) Delay(d time.Duration) { p.set(func(f *faults) { f.delay = d }) }

// Drop loses all bytes that go in direction d; the other direction works. The connections that lost
// something are reset by Heal, since their streams have a hole.
func (p *Proxy) Drop(d Direction) { p.set(func(f *faults) { f.drop[d] = true }) }

// BlackHole lets nothing pass in either direction, while connections stay open and can still be made.
// What was sent meanwhile arrives after Heal, as after a network's outage.
func (p *Proxy) BlackHole() { p.set(func(f *faults) { f.hold = true }) }

// SwallowReply loses the next bytes that come back from the server, on whatever connection, and resets
// that connection: the request was done and nobody knows. The channel is closed when that has happened.
func (p *Proxy) SwallowReply() <-chan struct{} { return p.swallow(nil) }

// SwallowReplyTo is SwallowReply for the reply that follows a request in which text stands.
func (p *Proxy) SwallowReplyTo(text string) <-chan struct{} { return p.swallow([]byte(text)) }

func (p *Proxy) swallow(match []byte) <-chan struct{} {
	s := &swallowOnce{match: match, done: make(chan struct{})}
	p.set(func(f *faults) { f.swallow = s })
	return s.done
}

// Heal ends every fault. Connections that lost bytes are reset.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setLocked(func(f *faults) { *f = faults{} })
	p.cutLocked(func(l *link) bool { return l.lost })
}

// Connections is the number of those that pass through it now.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *Proxy) set(change func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setLocked(change)
}

func (p *Proxy) setLocked(change func(*faults)) {
	change(&p.faults)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) cutLocked(which func(*link) bool) {
	for l := range p.links {
		if which(l) {
			l.reset()
		}
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.cutLocked(func(*link) bool { return true })
	p.mu.Unlock()
	_ = p.listener.Close()
	p.pumps.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // the proxy was closed
		}
		p.pumps.Go(func() { p.connect(client) })
	}
}

func (p *Proxy) connect(client net.Conn) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := &link{proxy: p, ctx: ctx, cancel: cancel, client: client}
	if !p.admit(l) {
		l.reset()
		return
	}
	defer p.forget(l)
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.target)
	if err != nil {
		l.reset()
		return
	}
	l.run(server)
}

func (p *Proxy) admit(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.faults.refuse {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// verdict is what becomes of a read's bytes.
type verdict int

const (
	pass verdict = iota
	lose
	cut
)

// judge waits while the proxy holds, and decides. It says cut when the link has ended.
func (p *Proxy) judge(l *link, d Direction, b []byte) verdict {
	for {
		p.mu.Lock()
		f, changed := p.faults, p.changed
		if !f.hold {
			v := p.judgeLocked(l, d, b)
			p.mu.Unlock()
			return v
		}
		p.mu.Unlock()
		select {
		case <-changed:
		case <-l.ctx.Done():
			return cut
		}
	}
}

func (p *Proxy) judgeLocked(l *link, d Direction, b []byte) verdict {
	if p.faults.drop[d] {
		l.lost = true
		return lose
	}
	s := p.faults.swallow
	switch {
	case s == nil:
	case d == ToServer && s.link == nil && s.match != nil && bytes.Contains(b, s.match):
		s.link = l
	case d == ToClient && (s.link == l || s.match == nil):
		p.faults.swallow = nil
		close(s.done)
		return cut
	}
	return pass
}

func (p *Proxy) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults.delay
}
