package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// history is a run that never took place: the judge is told what happened.
type history struct {
	*world
	t testing.TB
}

// past begins with two networks, two socket servers, a relay, a notifier, and one steady user with a browser.
func past(t testing.TB) (*history, *browser) {
	w := &world{t: t, ctx: t.Context(), cfg: Config{Out: io.Discard}, began: time.Unix(1000, 0), counts: map[string]int{}}
	w.store = &store{}
	w.relays, w.notifiers = []*node{{name: "relay-1"}}, []*node{{name: "notify-1"}}
	w.sockets = []*node{{name: "socket-1"}, {name: "socket-2"}}
	w.networks = []*network{{name: "network-0"}, {name: "network-1"}}
	w.ledger = &ledger{byID: map[string]*event{}, byUser: map[string][]*event{}}
	w.hook = &hook{ledger: w.ledger, notices: map[pair]*notice{}}
	w.sight = &sight{stale: map[string]string{}}
	w.people = &people{world: w}
	w.publishing = &publishing{world: w}
	h := &history{world: w, t: t}
	return h, h.user("alice", steady)
}

func (h *history) user(name string, habit habit) *browser {
	b := &browser{name: name + "/1", user: name, network: h.networks[0], acks: map[int]ackAt{}, began: h.began}
	who := &person{name: name, habit: habit}
	if habit != absent {
		who.browsers = []*browser{b}
	}
	h.people.all = append(h.people.all, who)
	return b
}

// at is a second of the run.
func (h *history) at(s float64) time.Time {
	return h.began.Add(time.Duration(s * float64(time.Second)))
}

// committed is an event that was committed at a second, after those before it.
func (h *history) committed(s float64, to ...string) *event {
	e := &event{id: fmt.Sprintf("event-%d", len(h.ledger.events)), to: to}
	h.ledger.begin(e)
	e.sent = h.at(s)
	h.ledger.commit(e.id, h.at(s))
	return e
}

func (h *history) shown(b *browser, s float64, e *event) {
	b.shown = append(b.shown, showing{n: e.n, at: h.at(s), loaded: b.loaded.has(e.n)})
}

func (h *history) loaded(b *browser, s float64, events ...*event) {
	var got bits
	for _, e := range events {
		got.set(e.n)
	}
	b.loaded.add(got)
	b.loads = append(b.loads, pageLoad{welcome: h.at(s), at: h.at(s), events: got})
}

func (h *history) acked(b *browser, s float64, e *event) *conn {
	c := &conn{browser: b, server: h.sockets[0], network: b.network}
	b.acks[e.n] = ackAt{at: h.at(s), conn: c}
	return c
}

// notified: handed over at one second, taken at others.
func (h *history) notified(user string, e *event, handed float64, taken ...float64) {
	n := &notice{}
	for _, s := range taken {
		n.taken = append(n.taken, receipt{handed: h.at(handed), at: h.at(s), answered: true})
	}
	h.hook.notices[pair{e.n, user}] = n
}

func (h *history) during(s *spans, from, to float64) { s.end(s.since("trouble", h.at(from)), h.at(to)) }

// want compares the columns that are not zero.
func (h *history) want(columns map[string]int) *Report {
	h.t.Helper()
	r := h.judge()
	for _, one := range r.rows() {
		if len(one.list) != columns[one.name] {
			h.t.Errorf("%s: %d %v, want %d", one.name, len(one.list), one.list, columns[one.name])
		}
	}
	return r
}

func TestJudge_findsNothingInAGoodRun(t *testing.T) {
	t.Parallel()
	h, alice := past(t)
	h.user("bob", absent)
	first := h.committed(1, "alice", "bob")
	h.loaded(alice, 2, first)
	second := h.committed(3, "alice")
	h.shown(alice, 3.1, second)
	h.notified("bob", first, 1, 11)
	r := h.want(nil)
	if r.Events != 2 || r.Pairs != 3 || r.Recipients != 2 || r.Shown != 1 || r.Gap.took != 100*time.Millisecond {
		t.Errorf("counted %+v", r)
	}
}

func TestJudge_findsWhatIsLost(t *testing.T) {
	t.Parallel()
	h, _ := past(t)
	h.user("bob", absent)
	h.user("carol", gone)
	e := h.committed(1, "alice", "bob", "carol")
	h.notified("alice", e, 1, 11) // her browser, which is there, misses it all the same
	h.want(map[string]int{"lost": 1, "neither delivered nor notified": 2})
}

func TestJudge_expectsNothingOfWhatMayBeDropped(t *testing.T) {
	t.Parallel()
	h, alice := past(t)
	h.user("bob", absent)
	h.committed(1, "alice", "bob").ephemeral = true
	h.committed(2, "alice", "bob").expires = true
	quiet := h.committed(3, "alice", "bob")
	quiet.quiet = true
	h.shown(alice, 4, quiet)
	h.want(nil)
}

func TestJudge_findsWhatIsShownTwice(t *testing.T) {
	t.Parallel()
	h, alice := past(t)
	e := h.committed(1, "alice")
	h.shown(alice, 2, e)
	h.shown(alice, 3, e)
	h.want(map[string]int{"seen twice by the application": 1})
}

func TestJudge_findsWhatThePageHadLoaded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		welcome float64
		broken  bool // a relay, in between
		want    int
	}{
		"long before": {welcome: 50, want: 1},
		"on its way":  {welcome: 20, want: 0},
		"rewound":     {welcome: 50, broken: true, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, alice := past(t)
			e := h.committed(1, "alice")
			h.loaded(alice, c.welcome, e)
			h.shown(alice, 60, e)
			if c.broken {
				h.during(&h.relays[0].troubles, 30, 40)
			}
			h.want(map[string]int{"seen twice by the application": c.want})
		})
	}
}

func TestJudge_findsDisorder(t *testing.T) {
	t.Parallel()
	h, alice := past(t)
	first, second, third := h.committed(1, "alice"), h.committed(2, "alice"), h.committed(3, "alice")
	h.loaded(alice, 2.5, first)
	h.shown(alice, 4, third)
	h.shown(alice, 5, second) // wrong
	h.shown(alice, 6, first)  // the page had it: it has no place
	h.want(map[string]int{"out of order": 1})
}

func TestJudge_findsNeedlessNotifications(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(h *history, c *conn)
		want   int
	}{
		"acked in time":        {change: func(*history, *conn) {}, want: 1},
		"server killed soon":   {change: func(h *history, c *conn) { h.during(&c.server.troubles, 14, 20) }},
		"server killed later":  {change: func(h *history, c *conn) { h.during(&c.server.troubles, 18, 25) }, want: 1},
		"connection ended":     {change: func(h *history, c *conn) { c.ended.Store(h.at(10.5).UnixNano()) }},
		"network broken":       {change: func(h *history, c *conn) { h.during(&c.network.troubles, 9.5, 12) }},
		"redis lost the ack":   {change: func(h *history, _ *conn) { h.during(&h.store.troubles, 12, 15) }},
		"redis lost all later": {change: func(h *history, _ *conn) { h.during(&h.store.emptied, 30, 30) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, alice := past(t)
			e := h.committed(9, "alice")
			h.shown(alice, 10, e)
			conn := h.acked(alice, 10, e)
			h.notified("alice", e, 20, 40)
			c.change(h, conn)
			h.want(map[string]int{"notified though acked in time": c.want})
		})
	}
}

func TestJudge_letsAcksCrossTheGrace(t *testing.T) {
	t.Parallel()
	h, alice := past(t)
	e := h.committed(9, "alice")
	h.shown(alice, 25, e)
	h.acked(alice, 25, e)
	h.notified("alice", e, 20, 30)
	if r := h.want(nil); r.Excepted.Crossed != 1 {
		t.Errorf("%d crossed, want 1", r.Excepted.Crossed)
	}
}

// What was taken before the ack was none that had been acked, whatever comes later.
func TestJudge_looksAtEachNotificationByItself(t *testing.T) {
	t.Parallel()
	h, alice := past(t)
	e := h.committed(1, "alice")
	h.loaded(alice, 20, e)
	h.acked(alice, 20, e)
	h.notified("alice", e, 1, 11, 12)
	h.hook.notices[pair{e.n, "alice"}].taken[0].answered = false
	h.want(nil)
}

func TestJudge_findsRepeatedNotifications(t *testing.T) {
	t.Parallel()
	h, _ := past(t)
	h.user("bob", absent)
	one, two, three := h.committed(1, "bob"), h.committed(2, "bob"), h.committed(3, "bob")
	h.notified("bob", one, 1, 11, 40) // nothing had happened
	h.notified("bob", two, 2, 100, 130)
	h.during(&h.notifiers[0].troubles, 110, 120)
	h.notified("bob", three, 3, 40, 70)
	h.hook.notices[pair{three.n, "bob"}].taken[0].answered = false
	h.want(map[string]int{"notified twice": 1})
}

func TestJudge_reportsWhatIsBroken(t *testing.T) {
	t.Parallel()
	h, alice := past(t)
	alice.fault("seq 3 comes after 4")
	h.hook.fault("webhook x: its signature is wrong")
	h.left = "3 entries in socket:inbox:x"
	h.dead = []string{"socket:dead 1-1: undecodable"}
	h.sight.stale["x"] = "x is 6m old"
	r := h.want(map[string]int{"protocol, process or settling faults": 4, "older than five minutes in an inbox": 1})
	var out strings.Builder
	r.Print(&out)
	for _, want := range []string{"seq 3 comes after 4", "its signature is wrong", "x is 6m old"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not tell %q:\n%s", want, out.String())
		}
	}
}
