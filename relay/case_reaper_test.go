package relay_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/relay"
)

// withRelays adds an outbox, so that relays can run here.
func (m *morgue) withRelays() *morgue {
	m.mongo = testkit.FirstMongo(m.t)
	m.store = openStore(m.t, m.mongo.URL)
	return m
}

// D04: A is killed and starts again under the same name at once. What it held, and
// what comes for a user who stays away, is notified; he is not at A any more.
func TestCase_D04_RestartsInsideTheLease(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		m.withRelays()
		m.relay(quick("r")).ready()
		a := m.instance("a") // its lease is an hour long
		a.connect("u", "v")
		e1, e2 := event(1, "u"), event(2, "u")
		m.publish(e1)
		eventually(t, 10*time.Second, "e1 is in the inbox of A", func() bool { return len(m.held(a)) == 1 })
		again := m.instance("a")
		m.publish(e2)
		eventually(t, 10*time.Second, "u is notified", func() bool { return len(firsts(m.notified())["u"]) == 2 })
		m.awaitReaped(a)
		user, err := m.reg.Lookup(context.Background(), "u")
		if err != nil || len(user.Locations) != 0 {
			t.Errorf("u is at %v, %v", user.Locations, err)
		}
		if l := m.lease(again.id); !l.Running {
			t.Errorf("the new A: %+v", l)
		}
	})
}

// D14: two relays notice the same death. 50 pending pairs make 50, not 100.
func TestCase_D14_TwoReapers(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		for round := range 10 {
			a, b := m.instance(fmt.Sprint("a", round)), m.instance(fmt.Sprint("b", round))
			user := protocol.UserID(fmt.Sprint("u", round))
			a.connect(user)
			b.connect(user)
			for n := range 50 {
				m.route(a, event(n, user), user)
			}
			m.take(a, 50)
			m.die(a)
			seen := m.lease(a.id)
			var both sync.WaitGroup
			start := make(chan struct{})
			for _, name := range []string{"r1", "r2"} {
				r := m.reaper(name)
				both.Go(func() {
					<-start
					if err := r.Reap(context.Background(), seen); err != nil && !errors.Is(err, relay.ErrOthers) {
						t.Error(err)
					}
				})
			}
			close(start)
			both.Wait()
			m.checkGone(a)
			got := m.held(b)
			if len(got) != 50 || len(m.entries(b)) > 50 {
				t.Fatalf("%d pairs in %d entries", len(got), len(m.entries(b)))
			}
			checkOrder(t, got, 0, 49)
			checkSeqs(t, got)
		}
	})
}

// D14, with one of them frozen between taking the entries and moving them, for longer
// than its lock: it finds that others were at work, and moves nothing.
func TestCase_D14_AFrozenReaper(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		a, b := m.instance("a"), m.instance("b")
		a.connect("u")
		b.connect("u")
		for n := range 50 {
			m.route(a, event(n, "u"), "u")
		}
		m.take(a, 50)
		m.die(a)
		hook := &redisStep{after: func(names []string, _ []redis.Cmder) error {
			if names[0] == "xrange" { // the bodies of what it took
				passed(t, quick("").Lease/2) // its lock is due for renewal
				m.expire(a)                  // and over
				m.reap(m.reaper("second"), a)
			}
			return nil
		}}
		err := m.reaper("first", hook).Reap(context.Background(), m.lease(a.id))
		isErr(t, err, relay.ErrOthers)
		if got := m.held(b); len(got) != 50 {
			t.Errorf("%d pairs", len(got))
		}
		m.checkGone(a)
		if h := m.history(); len(h) != 1 {
			t.Errorf("history %+v", h)
		}
	})
}

// D15, the reaper's part: users who are online elsewhere, offline, or dropping at the
// moment of A's death. Each event is acked at A, or moved, or notified once.
func TestCase_D15_OnlineOrNotified(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		ctx := context.Background()
		a, b := m.instance("a"), m.instance("b")
		all := users(100)
		a.connect(all...)
		want := map[string]string{}
		var moving []*registryMove
		for i, u := range all {
			id := m.route(a, event(1, u), u)
			if i%2 == 0 {
				m.take(a, 1)
			} else if i%3 == 0 {
				m.take(a, 1)
				if err := m.streams.Settle(ctx, a.id, id); err != nil { // acked in time
					t.Fatal(err)
				}
				want["1 of "+string(u)] = "acked"
				continue
			}
			switch i % 5 {
			case 0: // comes back elsewhere before the reap
				b.connect(u)
				want["1 of "+string(u)] = "moved"
			case 1: // comes back in the middle of it: either will do
				moving = append(moving, &registryMove{b, u})
				want["1 of "+string(u)] = "either"
			default:
				want["1 of "+string(u)] = "notified"
			}
		}
		m.die(a)
		hook := &redisStep{before: func(_ []string, cmds []redis.Cmder) error {
			if len(moving) > 0 {
				moving[0].b.connect(moving[0].u)
				moving = moving[1:]
			}
			return nil
		}}
		m.reap(m.reaper("r", hook), a)
		m.checkGone(a)
		moved, notified := count(m.held(b)), count(m.notified())
		for pair, what := range want {
			got := fmt.Sprint(moved[pair], " moved, ", notified[pair], " notified")
			ok := map[string]bool{
				"acked": got == "0 moved, 0 notified", "moved": got == "1 moved, 0 notified",
				"notified": got == "0 moved, 1 notified", "either": moved[pair]+notified[pair] == 1,
			}[what]
			if !ok {
				t.Errorf("%s: %s, want %s", pair, got, what)
			}
		}
	})
}

type registryMove struct {
	b *instance
	u protocol.UserID
}

// B24, the reaper's part: Redis is gone in the middle of a reap and comes back empty.
// The reap ends, and does not go on there with what it read before.
func TestCase_B24_RedisIsRestartedEmpty(t *testing.T) {
	t.Parallel()
	s := testkit.OwnRedis(t)
	m := newMorgue(t, s)
	a, b := m.instance("a"), m.instance("b")
	_, _ = m.full(a, b, 0)
	first := once()
	hook := &redisStep{after: func(names []string, _ []redis.Cmder) error {
		if names[0] == "xautoclaim" && first() {
			s.Restart(t)
		}
		return nil
	}}
	r := m.reaper("r", hook)
	if err := r.Reap(context.Background(), m.lease(a.id)); err == nil {
		t.Error("it did not notice")
	}
	if n := m.rdb.DBSize(context.Background()).Val(); n != 0 {
		t.Errorf("%d keys in the empty Redis", n)
	}
}

// B05: ids whose bodies are gone: the reap completes, as with Redis 6.2, which answers
// them like others, and as with 7, which drops them itself.
func TestCase_B05_BodiesAreGone(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"6.2", "7"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			m := newMorgue(t, testkit.RealRedis(t))
			ctx := context.Background()
			a := m.instance("a")
			a.connect("u")
			var ids []string
			for n := range 10 {
				ids = append(ids, m.route(a, event(n, "u"), "u"))
			}
			m.take(a, 10)
			m.rdb.XDel(ctx, inbox.Key(a.id), ids[:9]...)
			m.die(a)
			like62 := &redisStep{before: func(names []string, cmds []redis.Cmder) error {
				if names[0] == "xautoclaim" && version == "6.2" {
					return errReplaced
				}
				return nil
			}}
			m.reap(m.reaper("r", replaceClaim{like62, m, a}), a)
			m.checkGone(a)
			checkNotified(t, m, "u", 9)
			if h := m.history(); h[0].Lost != 9 || h[0].Entries != 10 || m.rdb.XLen(ctx, inbox.Dead).Val() != 0 {
				t.Errorf("history %+v", h[0])
			}
		})
	}
}

var errReplaced = errors.New("answered as by another version")

// replaceClaim answers XAUTOCLAIM as Redis 6.2 does.
type replaceClaim struct {
	*redisStep
	m *morgue
	a *instance
}

func (c replaceClaim) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	around := c.redisStep.ProcessHook(next)
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := around(ctx, cmd)
		if !errors.Is(err, errReplaced) {
			return err
		}
		pending, err := c.m.rdb.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: inbox.Key(c.a.id), Group: inbox.Group, Start: "-", End: "+", Count: 100}).Result()
		ids := []any{}
		for _, p := range pending {
			ids = append(ids, p.ID)
		}
		cmd.SetErr(nil)
		cmd.(*redis.Cmd).SetVal([]any{"0-0", ids})
		return err
	}
}
