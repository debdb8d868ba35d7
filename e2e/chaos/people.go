package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// habit is how a user uses the application.
type habit int

const (
	steady   habit = iota // always connected, or on the way to be
	commuter              // comes and goes; comes back where he was, or with a new page
	gone                  // there at first, then never again: he left, or gave up on a dead network
	absent                // never there
)

// person is one user with his browsers.
type person struct {
	name  string
	habit habit

	mu       sync.Mutex
	browsers []*browser // all there ever were
	leave    func()     // ends the visit of one who will be gone
}

// people are all users.
type people struct {
	// fixed after construction
	world  *world
	all    []*person
	cancel context.CancelFunc
	home   chan struct{} // closed: everybody comes back and stays

	group sync.WaitGroup

	mu    sync.Mutex
	count int
}

func newPeople(w *world) *people {
	p := &people{world: w, home: make(chan struct{})}
	ctx, cancel := context.WithCancel(w.ctx)
	p.cancel = cancel
	w.t.Cleanup(p.stop)
	for i := range w.cfg.Users {
		one := &person{name: fmt.Sprintf("user-%03d", i), habit: habitOf(i)}
		p.all = append(p.all, one)
		random := draw(w.cfg.Seed, drawPeople, uint64(i))
		switch one.habit {
		case steady:
			p.stay(ctx, one, random)
			if i%10 == 0 {
				p.stay(ctx, one, random) // his second device
			}
		case commuter:
			p.group.Go(func() { p.commute(ctx, one, random) })
		case gone:
			p.group.Go(func() { p.visit(ctx, one, random) })
		case absent:
		}
	}
	return p
}

// habitOf: of twenty users eleven are steady, five commute, three go, one was never there.
func habitOf(i int) habit {
	switch i % 20 {
	case 3, 7, 11, 15, 19:
		return commuter
	case 5, 13, 17:
		return gone
	case 9:
		return absent
	}
	return steady
}

func (p *people) newBrowser(who *person, random *rand.Rand) *browser {
	p.mu.Lock()
	p.count++
	count := p.count
	p.mu.Unlock()
	b := &browser{
		name: fmt.Sprintf("%s/%d", who.name, count), user: who.name, token: mint(p.world, who.name),
		network: p.world.networks[random.IntN(len(p.world.networks))], servers: p.world.sockets, ledger: p.world.ledger,
		random: rand.New(rand.NewPCG(random.Uint64(), random.Uint64())), wake: make(chan struct{}, 1), spread: firstWithin,
		acks: map[int]ackAt{}, began: p.world.began,
	}
	b.receiver = newReceiver(b)
	who.mu.Lock()
	who.browsers = append(who.browsers, b)
	who.mu.Unlock()
	return b
}

// mint signs a token as an application's backend would.
func mint(w *world, user string) string {
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": user, "iat": time.Now().Unix(), "exp": time.Now().Add(2 * time.Hour).Unix(),
	}).SignedString([]byte(tokenSecret))
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

func (p *people) stay(ctx context.Context, who *person, random *rand.Rand) {
	b := p.newBrowser(who, random)
	p.group.Go(func() { b.run(ctx, true) })
}

func (p *people) visit(ctx context.Context, who *person, random *rand.Rand) {
	limited, leave := context.WithTimeout(ctx, between(random, 8*time.Second, warmUp+p.world.cfg.For))
	defer leave()
	b := p.newBrowser(who, random)
	who.mu.Lock()
	who.leave = leave
	who.mu.Unlock()
	b.run(limited, random.IntN(2) == 0)
}

// giveUp has those on a dead network who will be gone leave now, for the most part: what was on its way to
// them was written to a connection, and is seen by nobody.
func (p *people) giveUp(dead *network, pick uint64) {
	random := rand.New(rand.NewPCG(pick, 1))
	for _, one := range p.all {
		one.mu.Lock()
		if one.leave != nil && one.browsers[0].network == dead && random.IntN(3) > 0 {
			one.leave()
		}
		one.mu.Unlock()
	}
}

// commute comes and goes until everybody comes back, then stays.
func (p *people) commute(ctx context.Context, who *person, random *rand.Rand) {
	var b *browser
	for ctx.Err() == nil {
		if b == nil || random.IntN(10) < 3 {
			b = p.newBrowser(who, random) // a new page, which knows nothing of the old one
		}
		out, leave := context.WithCancel(ctx)
		timer := time.AfterFunc(between(random, 5*time.Second, 40*time.Second), func() {
			if !p.isHome() {
				leave()
			}
		})
		b.run(out, random.IntN(2) == 0)
		timer.Stop()
		leave()
		away := time.NewTimer(between(random, time.Second, 40*time.Second))
		select {
		case <-p.home:
		case <-ctx.Done():
		case <-away.C:
		}
		away.Stop()
	}
}

// staying are the browsers that have to know everything at the end.
func (one *person) staying() []*browser {
	one.mu.Lock()
	defer one.mu.Unlock()
	switch {
	case one.habit == steady:
		return append([]*browser{}, one.browsers...)
	case one.habit == commuter && len(one.browsers) > 0:
		return one.browsers[len(one.browsers)-1:]
	}
	return nil
}

func (p *people) isHome() bool {
	select {
	case <-p.home:
		return true
	default:
		return false
	}
}

// gather has everybody come back who is to.
func (p *people) gather() {
	close(p.home)
	for _, b := range p.everyone() {
		b.nudge()
	}
}

// drop ends the connections of a part of the browsers.
func (p *people) drop(pick uint64) (dropped int) {
	random := rand.New(rand.NewPCG(pick, 0))
	part := 0.1 + 0.4*random.Float64()
	for _, b := range p.everyone() {
		if random.Float64() < part && b.drop() {
			dropped++
		}
	}
	return dropped
}

func (p *people) everyone() []*browser {
	var out []*browser
	for _, one := range p.all {
		one.mu.Lock()
		out = append(out, one.browsers...)
		one.mu.Unlock()
	}
	return out
}

// stop ends all connections.
func (p *people) stop() {
	p.cancel()
	p.group.Wait()
}
