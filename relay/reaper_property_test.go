package relay_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/relay"
)

// Whatever a dead inbox holds, however many reapers are killed over it, and whatever
// comes in meanwhile: every pair that was in it is in another inbox or notified, in
// its user's order, and nothing of the instance is left.
func TestReap_Property(t *testing.T) {
	t.Parallel()
	m := newMorgue(t, testkit.EmbeddedRedis(t))
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		m.rdb.Del(context.Background(), inbox.Notifications, relay.History)
		p := &reapProperty{morgue: m, rt: rt, want: map[string]bool{}}
		p.dead, p.other = m.instance(fmt.Sprint("dead", round)), m.instance(fmt.Sprint("other", round))
		for i := range 3 {
			p.users = append(p.users, protocol.UserID(fmt.Sprintf("u%d-%d", round, i)))
		}
		p.dead.connect(p.users...)
		p.fill()
		m.die(p.dead)
		for kills := rapid.IntRange(0, 4).Draw(rt, "kills"); kills > 0; kills-- {
			p.reap(int32(rapid.IntRange(1, 25).Draw(rt, "at")), rapid.Bool().Draw(rt, "late"))
		}
		p.reap(1<<30, false)
		p.check()
	})
}

type reapProperty struct {
	*morgue
	rt          *rapid.T
	dead, other *instance
	users       []protocol.UserID
	want        map[string]bool // "<event> of <user>"
	n           int
}

// fill puts entries into the inbox, some of them read, some acked, by users of whom
// some come back elsewhere.
func (p *reapProperty) fill() {
	for range rapid.IntRange(0, 8).Draw(p.rt, "entries") {
		id, pair := p.arrive()
		switch rapid.SampledFrom([]string{"unread", "pending", "acked"}).Draw(p.rt, "state") {
		case "pending":
			p.read()
		case "acked":
			p.read()
			if err := p.streams.Settle(context.Background(), p.dead.id, id); err != nil {
				p.rt.Fatal(err)
			}
			delete(p.want, pair)
		}
	}
	p.comeBack()
}

func (p *reapProperty) read() {
	if _, err := p.streams.Read(context.Background(), p.rdb, p.dead.id, 100, 0); err != nil {
		p.rt.Fatal(err)
	}
}

// arrive is a relay that still finds a user here; what it can't append it brings
// elsewhere itself.
func (p *reapProperty) arrive() (id, pair string) {
	p.n++
	u := rapid.SampledFrom(p.users).Draw(p.rt, "user")
	id, err := p.streams.Append(context.Background(), p.dead.id, inbox.Entry{Batch: p.batch(event(p.n, u), u)})
	pair = fmt.Sprintf("%d of %s", p.n, u)
	switch {
	case err == nil:
		p.want[pair] = true
	case !errors.Is(err, inbox.ErrGone):
		p.rt.Fatal(err)
	}
	return id, pair
}

func (p *reapProperty) comeBack() {
	if rapid.Bool().Draw(p.rt, "comes back") {
		p.other.connect(rapid.SampledFrom(p.users).Draw(p.rt, "who"))
	}
}

// reap lets a reaper work that is killed at a call, while things happen at another.
func (p *reapProperty) reap(at int32, late bool) {
	l := p.lease(p.dead.id)
	if l.ID == "" {
		return
	}
	p.expire(p.dead)
	kill, dead := reaperKilledAt(at, late)
	meanwhile, calls := rapid.IntRange(1, 20).Draw(p.rt, "meanwhile"), 0
	happens := &redisStep{before: func([]string, []redis.Cmder) error {
		if calls++; calls == meanwhile {
			p.arrive()
			p.comeBack()
		}
		return nil
	}}
	err := p.reaper("r", happens, kill).Reap(context.Background(), l)
	if err != nil && !dead() {
		p.rt.Fatalf("reap: %v", err)
	}
}

func (p *reapProperty) check() {
	p.expire(p.dead) // of one that was killed at its very end
	p.checkGone(p.dead)
	got := append(p.held(p.other), p.notified()...)
	all := count(got)
	for pair := range p.want {
		if all[pair] == 0 {
			p.rt.Errorf("%s is lost", pair)
		}
	}
	for _, u := range p.users {
		last := 0
		for _, d := range firsts(p.held(p.other))[u] {
			if d.N < last {
				p.rt.Errorf("%s: event %d came behind %d", u, d.N, last)
			}
			last = d.N
		}
	}
	if h := p.history(); len(h) == 0 || h[0].Instance != p.dead.id {
		p.rt.Errorf("history %+v", h)
	}
}
