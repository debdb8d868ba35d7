package relay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/relay"
)

// T01, the reaper's side: e1 is unread in A's inbox, its user resumed at A into a
// half-open connection, and A dies before he acked. That a session of A knew e1
// settles nothing: notified.
func TestTrace_T01_ResumedWhereItLies(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		a, b := m.instance("a"), m.instance("b")
		a.connect("u")
		m.route(a, event(1, "u"), "u")
		a.connect("u") // the resumption, at A again
		m.die(a)
		m.reap(m.reaper("r"), a)
		m.checkGone(a)
		checkNotified(t, m, "u", 1)
		if got := m.held(b); len(got) != 0 {
			t.Errorf("moved %v", got)
		}
	})
}

// T02: the user resumed at B, whose replay sent e1; the reaper moves A's e1 to B, as
// the same pair, and it can be handed on from there when he is gone.
func TestTrace_T02_MovedToWhereItWasReplayed(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		a, b := m.instance("a"), m.instance("b")
		a.connect("u")
		m.route(a, event(1, "u"), "u")
		before := m.held(a)[0]
		b.connect("u")
		m.die(a)
		m.reap(m.reaper("r"), a)
		moved := m.entries(b)
		if len(moved) != 1 || len(m.notified()) != 0 {
			t.Fatalf("moved %v, notified %v", moved, m.notified())
		}
		if got := m.held(b)[0]; got != before || !moved[0].Redelivered() || moved[0].Attempt != 1 {
			t.Errorf("moved %+v of %+v, want %+v", got, moved[0], before)
		}
		m.die(b) // and nobody ever comes back
		m.reap(m.reaper("r"), b)
		checkNotified(t, m, "u", 1)
		if n := len(m.notified()); n != 1 {
			t.Errorf("notified %d times", n)
		}
	})
}

// T11: e1 is in B's inbox, Redis loses that and breaks the connection, then A's is to
// be acknowledged. It is not: the move is done again.
func TestTrace_T11_MovedAgainAfterALoss(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		a, b := m.instance("a"), m.instance("b")
		a.connect("u")
		b.connect("u")
		m.route(a, event(1, "u"), "u")
		m.die(a)
		server, proxy := m.proxied()
		first := once()
		hook := &redisStep{after: func(_ []string, cmds []redis.Cmder) error {
			if isInbox(cmds) && first() {
				if n := m.rdb.XTrimMaxLen(context.Background(), inbox.Key(b.id), 0).Val(); n != 1 {
					t.Errorf("lost %d entries", n)
				}
				proxy.Cut()
				eventually(t, 5*time.Second, "cut", func() bool { return proxy.Connections() == 0 })
			}
			return nil
		}}
		r := m.reaperAt(server, "r", hook)
		if err := r.Reap(context.Background(), m.lease(a.id)); err == nil {
			t.Fatal("the reaper did not see that its connection broke")
		}
		if len(m.held(a)) != 1 || len(m.held(b)) != 0 {
			t.Fatalf("A holds %v, B %v", m.held(a), m.held(b))
		}
		eventually(t, 5*time.Second, "the move is done again", func() bool {
			return r.Reap(context.Background(), m.lease(a.id)) == nil && m.lease(a.id).ID == ""
		})
		m.checkGone(a)
		if got := m.held(b); len(got) != 1 || got[0].N != 1 {
			t.Errorf("moved %v", got)
		}
	})
}

// T17: A is frozen, reaped, and wakes up. No inbox comes back to life under its old
// id by what A and relays do; what somebody else's plain XADD makes is reaped too.
func TestTrace_T17_WakesUpReaped(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		ctx := context.Background()
		a := m.instance("a")
		a.connect("u")
		m.route(a, event(1, "u"), "u")
		m.die(a)
		r := m.reaper("r")
		m.reap(r, a)
		_, err := m.streams.Read(ctx, m.rdb, a.id, 10, 0)
		isErr(t, err, inbox.ErrGone)
		_, err = m.leases.Beat(ctx, a.id, 1000)
		isErr(t, err, heartbeat.ErrLost)
		late := inbox.Entry{Batch: m.batch(event(2, "u"), "u")}
		_, err = m.streams.Append(ctx, a.id, late)
		isErr(t, err, inbox.ErrGone)
		if err := m.leases.End(ctx, a.id); err != nil { // its fence
			t.Fatal(err)
		}
		m.reap(r, a)
		m.checkGone(a)

		if err := m.streams.Make(ctx, a.id); err != nil { // as somebody's XADD would
			t.Fatal(err)
		}
		m.add(a, late)
		if err := r.Adopt(ctx); err != nil {
			t.Fatal(err)
		}
		if l := m.lease(a.id); l.ID != a.id || l.Running {
			t.Fatalf("lease %+v", l)
		}
		m.reap(r, a)
		m.checkGone(a)
		checkNotified(t, m, "u", 1, 2)
	})
}

// T18: an entry that was acknowledged and not deleted, as an older version did it,
// stops no reaper, and is not moved.
func TestTrace_T18_HalfSettled(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		a := m.instance("a")
		a.connect("u")
		half := m.route(a, event(1, "u"), "u")
		m.take(a, 1)
		if err := m.rdb.XAck(context.Background(), inbox.Key(a.id), inbox.Group, half).Err(); err != nil {
			t.Fatal(err)
		}
		m.route(a, event(2, "u"), "u")
		m.die(a)
		m.reap(m.reaper("r"), a)
		m.checkGone(a)
		checkNotified(t, m, "u", 2)
	})
}

// T19: A and B die together, each named as the other's users' place: nothing goes to
// and fro. And a pair that is moved from one dying instance to the next is moved
// three times at most.
func TestTrace_T19_DieTogether(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		a, b := m.instance("a"), m.instance("b")
		a.connect("u", "v")
		b.connect("u", "v")
		m.route(a, event(1, "u"), "u")
		m.route(b, event(2, "v"), "v")
		m.die(a)
		m.die(b)
		r := m.reaper("r")
		m.reap(r, a)
		m.reap(r, b)
		m.checkGone(a)
		m.checkGone(b)
		checkNotified(t, m, "u", 1)
		checkNotified(t, m, "v", 2)
		if n := len(m.notified()); n != 2 {
			t.Errorf("%d notifications", n)
		}
	})
}

func TestTrace_T19_MovedThreeTimesAtMost(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		r := m.reaper("r")
		at := m.instance("i0")
		at.connect("u")
		m.route(at, event(1, "u"), "u")
		moves := 0
		for ; moves < 10 && len(m.notified()) == 0; moves++ {
			next := m.instance(fmt.Sprint("i", moves+1))
			next.connect("u")
			m.die(at)
			m.reap(r, at)
			m.checkGone(at)
			at = next
		}
		if moves != 4 || len(m.held(at)) != 0 { // the fourth time notified
			t.Errorf("%d reaps, %v", moves, m.held(at))
		}
		checkNotified(t, m, "u", 1)
	})
}

// T47: a claim and a beat at the same moment. Either A is lost and reaped, or the
// claim fails and nothing is touched; never both.
func TestTrace_T47_ClaimAndBeat(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		ctx := context.Background()
		for _, beatFirst := range []bool{true, false} {
			a := m.instance(fmt.Sprint("a", beatFirst))
			user := protocol.UserID(fmt.Sprint("u", beatFirst))
			a.connect(user)
			m.route(a, event(1, user), user)
			m.die(a)
			var beat error
			first := once()
			now := func(names []string, cmds []redis.Cmder) error {
				if isClaim(cmds, a.id) && first() {
					_, beat = m.leases.Beat(ctx, a.id, 1000)
				}
				return nil
			}
			hook := &redisStep{after: now}
			if beatFirst {
				hook = &redisStep{before: now}
			}
			m.reap(m.reaper("r", hook), a)
			if beatFirst {
				if l := m.lease(a.id); beat != nil || !l.Running || len(m.held(a)) != 1 || len(m.notified()) != 0 {
					t.Errorf("beat: %v, lease %+v, %d pairs, notified %v", beat, l, len(m.held(a)), m.notified())
				}
			} else {
				isErr(t, beat, heartbeat.ErrLost)
				m.checkGone(a)
				checkNotified(t, m, user, 1)
			}
		}
	})
}

// isClaim says that a script is sent that has the instance's id as its first argument.
func isClaim(cmds []redis.Cmder, id protocol.InstanceID) bool {
	c := cmds[0]
	return strings.HasPrefix(c.Name(), "eval") && len(c.Args()) > 4 && fmt.Sprint(c.Args()[3]) == heartbeat.SocketInstances && fmt.Sprint(c.Args()[4]) == string(id)
}

// T48: a marker write of one relay, the claim of another, and A's restart under its
// name, in any order: A's old inbox is emptied once, and the new A keeps its lease.
func TestTrace_T48_MarkerClaimRestart(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		for round, order := range [][]string{
			{"mark", "claim", "restart"}, {"mark", "restart", "claim"}, {"claim", "mark", "restart"},
			{"claim", "restart", "mark"}, {"restart", "mark", "claim"}, {"restart", "claim", "mark"},
		} {
			name := fmt.Sprint("a", round)
			user := protocol.UserID(fmt.Sprint("u", round))
			a := m.instance(name)
			a.connect(user)
			m.route(a, event(1, user), user)
			m.die(a)
			seen := m.lease(a.id)
			var again *instance
			steps := map[string]func(){
				"mark": func() {
					if err := m.rdb.HSet(context.Background(), relay.PartitionKey(0), "token", "t", "position", "1.1.0", "tick", round).Err(); err != nil {
						t.Fatal(err)
					}
				},
				"claim": func() { // by the second of two that saw the same, at its next look if the first sight is old
					if err := m.reaper("r2").Reap(context.Background(), seen); err != nil {
						t.Fatal(err)
					}
				},
				"restart": func() { again = m.instance(name) },
			}
			for _, s := range order {
				steps[s]()
			}
			for _, r := range []string{"r2", "r1"} { // the looks after that
				if l := m.lease(a.id); l.ID != "" {
					if err := m.reaper(r).Reap(context.Background(), l); err != nil {
						t.Fatal(err)
					}
				}
			}
			m.checkGone(a)
			checkNotified(t, m, user, 1)
			if l := m.lease(again.id); !l.Running {
				t.Errorf("%v: lease of the new one: %+v", order, l)
			}
			if _, err := m.streams.Backlog(context.Background(), again.id); err != nil {
				t.Errorf("%v: inbox of the new one: %v", order, err)
			}
			if n := len(slices.DeleteFunc(m.history(), func(r relay.Reaped) bool { return r.Instance != a.id })); n != 1 {
				t.Errorf("%v: reaped %d times", order, n)
			}
			if n := len(m.notified()); n != round+1 {
				t.Errorf("%v: %d notifications", order, n)
			}
		}
	})
}
