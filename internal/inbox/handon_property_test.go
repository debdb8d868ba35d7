package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// Whatever waits, whoever is connected where, and whichever inboxes are gone: each
// pair is in every inbox where it belongs, or in notifications once, and a user's
// pairs that travel the same way keep their order.
func TestHandOnProperty(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		b := newBundle(t, s)
		h := b.handOn()
		rapid.Check(t, func(rt *rapid.T) {
			if err := b.rdb.FlushDB(context.Background()).Err(); err != nil {
				rt.Fatal(err)
			}
			c := drawCase(t, rt, b)
			r, err := h.Do(context.Background(), c.from, inbox.Undelivered, nil, c.ws)
			if err != nil {
				rt.Fatal(err)
			}
			c.check(t, rt, b, r)
		})
	})
}

// place is a pair of an event, comparable.
type place struct {
	event protocol.EventID
	pair  protocol.Pair
}

type handOnCase struct {
	from   protocol.InstanceID
	others []protocol.InstanceID // with running leases and inboxes
	gone   []protocol.InstanceID // with running leases and no inbox
	at     map[protocol.UserID][]protocol.InstanceID
	ws     []inbox.Waiting
	old    map[place]bool // not to be moved
}

func drawCase(t *testing.T, rt *rapid.T, b bundle) *handOnCase {
	c := &handOnCase{from: b.instance(t, "from"), at: map[protocol.UserID][]protocol.InstanceID{}, old: map[place]bool{}}
	for i := range rapid.IntRange(0, 3).Draw(rt, "others") {
		c.others = append(c.others, b.instance(t, fmt.Sprint("other", i)))
	}
	for i := range rapid.IntRange(0, 1).Draw(rt, "gone") {
		id := b.instance(t, fmt.Sprint("gone", i))
		if _, err := b.streams.Seal(t.Context(), id); err != nil {
			rt.Fatal(err)
		}
		c.gone = append(c.gone, id)
	}
	everywhere := slices.Concat([]protocol.InstanceID{c.from}, c.others, c.gone)
	users := rapid.IntRange(1, 5).Draw(rt, "users")
	for u := range users {
		user := protocol.UserID(fmt.Sprint("u", u))
		for range rapid.IntRange(0, 3).Draw(rt, "sessions") {
			id := everywhere[rapid.IntRange(0, len(everywhere)-1).Draw(rt, "instance")]
			b.connect(t, user, id)
			if slices.Contains(c.others, id) && !slices.Contains(c.at[user], id) {
				c.at[user] = append(c.at[user], id)
			}
		}
	}
	c.drawPairs(t, rt, users)
	return c
}

func (c *handOnCase) drawPairs(t *testing.T, rt *rapid.T, users int) {
	events := make([]*protocol.Envelope, rapid.IntRange(1, 8).Draw(rt, "events"))
	for i := range events {
		events[i] = envelope(t)
	}
	ages := []time.Duration{0, time.Second, 2 * time.Minute}
	now := time.Now()
	next := map[protocol.UserID]int{}
	for range rapid.IntRange(0, 60).Draw(rt, "pairs") {
		user := protocol.UserID(fmt.Sprint("u", rapid.IntRange(0, users-1).Draw(rt, "user")))
		next[user]++
		w := inbox.Waiting{
			Event: events[rapid.IntRange(0, len(events)-1).Draw(rt, "event")], Pair: pair(user, next[user]),
			Attempt: rapid.IntRange(0, 3).Draw(rt, "attempt"), Routed: now.Add(-rapid.SampledFrom(ages).Draw(rt, "age")),
		}
		c.ws = append(c.ws, w)
		c.old[place{w.Event.ID, w.Pair}] = w.Attempt >= 3 || now.Sub(w.Routed) > time.Minute
	}
}

func (c *handOnCase) check(t *testing.T, rt *rapid.T, b bundle, r inbox.Result) {
	moved := map[protocol.InstanceID]map[place]bool{}
	for _, id := range c.others {
		moved[id] = map[place]bool{}
		last := map[string]protocol.Seq{}
		for _, e := range b.entries(t, id) {
			for _, item := range e.Batch.Items {
				for _, p := range item.Pairs {
					at := place{item.Event.ID, p}
					if moved[id][at] {
						rt.Fatalf("%v is in %s twice", at, id)
					}
					moved[id][at] = true
					way := fmt.Sprint(p.User, e.Attempt, e.Routed.UnixMilli())
					if p.Seq < last[way] {
						rt.Fatalf("%s: seq %d of %s after %d", id, p.Seq, p.User, last[way])
					}
					last[way] = p.Seq
				}
			}
		}
	}
	notified := map[place]int{}
	for _, n := range b.notifications(t) {
		for _, p := range n.Item.Pairs {
			notified[place{n.Item.Event.ID, p}]++
		}
	}
	want := inbox.Result{}
	for _, w := range c.ws {
		at := place{w.Event.ID, w.Pair}
		to := c.at[w.Pair.User]
		if c.old[at] {
			to = nil
		}
		if len(to) == 0 {
			want.Notified++
		} else {
			want.Moved++
		}
		if n := notified[at]; (n == 1) != (len(to) == 0) || n > 1 {
			rt.Fatalf("%v was notified %d times, and belongs to %v", at, n, to)
		}
		for _, id := range c.others {
			if moved[id][at] != slices.Contains(to, id) {
				rt.Fatalf("%v in %s: %v, and it belongs to %v", at, id, moved[id][at], to)
			}
		}
	}
	if r != want {
		rt.Fatalf("result %+v, want %+v", r, want)
	}
	for _, w := range c.ws {
		for _, f := range b.fields(t, w.Pair.User) {
			if f.Instance == c.from {
				rt.Fatalf("%s still has a field at %s", w.Pair.User, f.Instance)
			}
		}
	}
}

// One HandOn serves the whole process.
func TestHandOnAtTheSameTime(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		dead, x := b.instance(t, "dead"), b.instance(t, "x")
		h := b.handOn()
		const users = 20
		for u := range users {
			b.connect(t, protocol.UserID(fmt.Sprint("u", u)), x)
		}
		var wg sync.WaitGroup
		for u := range users {
			wg.Go(func() {
				v := envelope(t)
				ws := []inbox.Waiting{waiting(v, pair(protocol.UserID(fmt.Sprint("u", u)), 1)), waiting(v, pair("offline", u+1))}
				r, err := h.Do(t.Context(), dead, inbox.Undelivered, nil, ws)
				if err != nil || r.Moved != 1 || r.Notified != 1 {
					t.Errorf("%+v, %v", r, err)
				}
			})
		}
		wg.Wait()
		if es, ns := b.entries(t, x), b.notifications(t); len(es) != users || len(ns) != users {
			t.Errorf("%d moved and %d notified", len(es), len(ns))
		}
	})
}
