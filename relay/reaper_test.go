package relay_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/relay"
)

// A dead inbox of everything that an inbox may hold.
func (m *morgue) full(a, b *instance, round int) (on, off protocol.UserID) {
	m.t.Helper()
	ctx := context.Background()
	on, off = protocol.UserID(fmt.Sprintf("on%d", round)), protocol.UserID(fmt.Sprintf("off%d", round))
	a.connect(on, off)
	b.connect(on)
	m.route(a, event(1, on, off), on, off)
	m.route(a, event(2, on), on)
	lost := m.route(a, event(3, on), on)
	if err := m.rdb.XAdd(ctx, &redis.XAddArgs{Stream: inbox.Key(a.id), Values: []any{"v", "9"}}).Err(); err != nil {
		m.t.Fatal(err)
	}
	m.take(a, 4)
	m.route(a, event(4, on, off), on, off)
	m.add(a, inbox.Entry{Control: &inbox.Control{Kick: on, Before: time.Now()}})
	m.route(a, event(5, off), off)
	if err := m.rdb.XDel(ctx, inbox.Key(a.id), lost).Err(); err != nil {
		m.t.Fatal(err)
	}
	if err := m.leases.Describe(ctx, a.id, heartbeat.Info{Name: "a"}); err != nil {
		m.t.Fatal(err)
	}
	m.die(a)
	return on, off
}

// Pending and unread entries go where their users are, or to notifications, and
// nothing of the dead instance is left.
func TestReap_Everything(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		a, b := m.instance("a"), m.instance("b")
		on, off := m.full(a, b, 0)
		ended := m.lease(a.id).Until
		m.reap(m.reaper("r"), a)
		m.checkGone(a)

		n := 0
		for _, e := range m.entries(b) {
			if e.From != a.id || e.Attempt != 1 || !e.Redelivered() {
				t.Errorf("entry %+v", e)
			}
			for _, item := range e.Batch.Items {
				n += len(item.Pairs)
			}
		}
		got := m.held(b)
		for i, want := range []struct{ n, seq int }{{1, 1}, {2, 2}, {4, 4}} {
			if n != 3 || got[i].N != want.n || got[i].Pair.User != on || got[i].Pair.Seq != protocol.Seq(want.seq) {
				t.Fatalf("moved %+v", got)
			}
		}
		checkNotified(t, m, off, 1, 4, 5)
		if n := m.rdb.XLen(context.Background(), inbox.Dead).Val(); n != 1 {
			t.Errorf("%d dead letters", n)
		}
		h := m.history()
		if len(h) != 1 {
			t.Fatalf("history %+v", h)
		}
		lost := 1
		if !m.redis.Real {
			lost = 0 // the embedded server hides pending ids whose body is gone
		}
		h[0].Took, h[0].By = 0, ""
		want := h[0]
		want.Instance, want.Entries, want.Bad, want.Lost, want.Controls = a.id, 6+lost, 1, lost, 1
		want.Moved, want.Notified, want.Dropped = 3, 3, 0
		if h[0] != want || !h[0].Ended.Equal(ended) {
			t.Errorf("history %+v, want %+v", h[0], want)
		}
		user, err := m.reg.Lookup(context.Background(), off)
		if err != nil || len(user.Locations) != 0 {
			t.Errorf("%s is still at %v, %v", off, user.Locations, err)
		}
	})
}

func checkNotified(t testing.TB, m *morgue, user protocol.UserID, events ...int) {
	t.Helper()
	got := map[int]bool{}
	for _, d := range m.notified() {
		if d.Pair.User == user {
			got[d.N] = true
		}
	}
	for _, n := range events {
		if !got[n] {
			t.Errorf("%s was not notified of event %d", user, n)
		}
	}
	if len(got) != len(events) {
		t.Errorf("%s was notified of %v, want %v", user, got, events)
	}
}

// Killed between any two steps, before or after the last one took effect: nothing is
// lost, and the next reaper leaves nothing.
func TestReap_KilledAnywhere(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		round := 0
		for _, late := range []bool{false, true} {
			for n := int32(1); ; n++ {
				round++
				a, b := m.instance(fmt.Sprint("a", round)), m.instance(fmt.Sprint("b", round))
				on, off := m.full(a, b, round)
				hook, dead := reaperKilledAt(n, late)
				err := m.reaper("first", hook).Reap(context.Background(), m.lease(a.id))
				if !dead() {
					if err != nil || n < 12 {
						t.Fatalf("call %d, late %v: %v", n, late, err)
					}
				} else {
					m.expire(a)
				}
				m.reap(m.reaper("second"), a)
				m.checkGone(a)
				moved := count(m.held(b))
				for _, e := range []int{1, 2, 4} {
					if moved[fmt.Sprintf("%d of %s", e, on)] == 0 {
						t.Errorf("killed at call %d, late %v: event %d was not moved", n, late, e)
					}
				}
				checkNotified(t, m, off, 1, 4, 5)
				checkNotified(t, m, on)
				if !dead() {
					break
				}
			}
		}
	})
}

// expire lets the lock of a reaper that was killed end.
func (m *morgue) expire(i *instance) {
	m.t.Helper()
	if err := m.rdb.Del(context.Background(), relay.ReapKey(i.id)).Err(); err != nil {
		m.t.Fatal(err)
	}
}

// The lock of a reaper that died ends by itself, and it keeps others out until then.
func TestReap_LockOfADeadReaper(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		a, b := m.instance("a"), m.instance("b")
		m.full(a, b, 0)
		hook, _ := reaperKilledAt(3, true)
		if err := m.reaper("first", hook).Reap(context.Background(), m.lease(a.id)); err == nil {
			t.Fatal("it was not killed")
		}
		next := m.reaper("second")
		isErr(t, next.Reap(context.Background(), m.lease(a.id)), relay.ErrOthers)
		eventually(t, 10*time.Second, "the lock ends", func() bool {
			err := next.Reap(context.Background(), m.lease(a.id))
			return err == nil
		})
		m.checkGone(a)
	})
}

// A lease that runs is not reaped, whatever a look showed before.
func TestReap_NeverARunningInstance(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		a, b := m.instance("a"), m.instance("b")
		m.full(a, b, 0)
		seen := m.lease(a.id)
		if _, err := m.leases.Beat(context.Background(), a.id, 0); err != nil {
			t.Fatal(err)
		}
		if err := m.reaper("r").Reap(context.Background(), seen); err != nil {
			t.Fatal(err)
		}
		if l := m.lease(a.id); !l.Running || len(m.held(b))+len(m.notified())+len(m.history()) != 0 {
			t.Errorf("reaped, lease %+v", l)
		}
		if n := m.rdb.Exists(context.Background(), relay.ReapKey(a.id)).Val(); n != 0 {
			t.Error("the lock is left")
		}
	})
}

// What is no inbox any more stops nobody: missing, of another type, without its group.
func TestReap_BrokenInboxes(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		ctx := context.Background()
		r := m.reaper("r")
		missing, text, grouped := m.instance("missing"), m.instance("text"), m.instance("grouped")
		grouped.connect("u")
		m.route(grouped, event(1, "u"), "u")
		m.take(grouped, 1)
		m.route(grouped, event(2, "u"), "u")
		p := m.rdb.Pipeline()
		p.Del(ctx, inbox.Key(missing.id), inbox.Key(text.id))
		p.Set(ctx, inbox.Key(text.id), "nonsense", 0)
		p.XGroupDestroy(ctx, inbox.Key(grouped.id), inbox.Group)
		if _, err := p.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		for _, i := range []*instance{missing, text, grouped} {
			m.die(i)
			m.reap(r, i)
			m.checkGone(i)
		}
		checkNotified(t, m, "u", 1, 2)
	})
}

// While the notification stream can't be written the entries stay where they are.
func TestReap_NotificationsAreInTrouble(t *testing.T) {
	eachMorgue(t, func(t *testing.T, m *morgue) {
		ctx := context.Background()
		a := m.instance("a")
		a.connect("u")
		m.route(a, event(1, "u"), "u")
		m.die(a)
		if err := m.rdb.Set(ctx, inbox.Notifications, "nonsense", 0).Err(); err != nil {
			t.Fatal(err)
		}
		r := m.reaper("r")
		if err := r.Reap(ctx, m.lease(a.id)); err == nil || errors.Is(err, relay.ErrOthers) {
			t.Fatalf("got %v", err)
		}
		if l := m.lease(a.id); l.ID == "" || len(m.held(a)) != 1 {
			t.Fatalf("lease %+v, %d entries", l, len(m.held(a)))
		}
		m.rdb.Del(ctx, inbox.Notifications)
		m.reap(r, a)
		m.checkGone(a)
		checkNotified(t, m, "u", 1)
	})
}

// A reap that its relay's end cuts off leaves the lock to others at once.
func TestReap_CutOff(t *testing.T) {
	t.Parallel()
	m := newMorgue(t, testkit.FirstRedis(t))
	a, b := m.instance("a"), m.instance("b")
	_, off := m.full(a, b, 0)
	ctx, cancel := context.WithCancel(context.Background())
	hook := &redisStep{after: func(names []string, _ []redis.Cmder) error {
		if names[0] == "xautoclaim" {
			cancel()
		}
		return nil
	}}
	isErr(t, m.reaper("first", hook).Reap(ctx, m.lease(a.id)), context.Canceled)
	m.reap(m.reaper("second"), a)
	m.checkGone(a)
	checkNotified(t, m, off, 1, 4, 5)
}
