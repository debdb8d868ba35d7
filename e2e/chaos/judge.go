package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// finding is one violation, or one thing that looked like one and is excepted.
type finding struct {
	text    string
	browser *browser // whose history tells more; nil: none
}

const (
	// ackedWithin is how soon what a browser acked must be known to notifiers: @acked is written every
	// 5 s at the latest; the rest is for a machine that is busy with a hundred other things.
	ackedWithin = 7 * time.Second
	// arrivedWithin is how soon an ack that was written has reached the server, unless its way was broken.
	arrivedWithin = time.Second
	// longBefore is how long before a welcome an event was committed of which nobody can say that it
	// was just on its way.
	longBefore = 30 * time.Second
)

// judge looks at everything once the run is over.
func (w *world) judge() *Report {
	if err := w.ledger.err(); err != nil {
		w.t.Fatalf("%v: nothing can be judged", err)
	}
	r := &Report{Config: w.cfg, Took: time.Since(w.began), Faults: w.counts}
	w.count(r)
	r.Lost = w.judgeSeen()
	r.Forsaken = w.judgeForsaken()
	r.Twice, r.Excepted.LoadedAgain = w.judgeTwice()
	r.Disorder = w.judgeOrder()
	r.Needless, r.Excepted.NotifiedAgain, r.Excepted.Crossed = w.judgeNeedless()
	r.Repeated, r.Excepted.SentAgain = w.judgeRepeated()
	stale, oldest := w.sight.old()
	r.OldestEntry = oldest
	r.Stale = findings(stale)
	r.Broken = findings(w.judgeBroken())
	r.Gap, r.CalmGap = w.longestGaps()
	for _, n := range w.nodes() {
		r.Exits = append(r.Exits, n.exits...)
	}
	if r.Violations() > 0 {
		w.keepLogs()
	}
	return r
}

func findings(texts []string) []finding {
	var out []finding
	for _, text := range texts {
		out = append(out, finding{text: text})
	}
	return out
}

func (w *world) count(r *Report) {
	users := map[string]bool{}
	for _, e := range w.ledger.all() {
		if e.order == 0 {
			continue
		}
		r.Events++
		r.Pairs += len(e.to)
		for _, user := range e.to {
			users[user] = true
		}
	}
	r.Recipients = len(users)
	r.Retries = w.publishing.tries.Load()
	for _, b := range w.people.everyone() {
		r.Browsers++
		b.mu.Lock()
		r.Shown += len(b.shown)
		r.Duplicates += b.again
		r.Loads += len(b.loads)
		b.mu.Unlock()
	}
	r.Notified = len(w.hook.taken())
}

// view is what one browser knows: what it was shown, and what it loaded.
func (b *browser) view() (shown, loaded bits) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.shown {
		shown.set(one.n)
	}
	loaded.add(b.loaded)
	return shown, loaded
}

// judgeSeen finds what a browser misses that is there at the end: neither shown to it nor covered by a load
// of its page. "Where the system can't vouch for a client's view, it says so; the application reloads, and
// everything committed before that moment counts as covered."
func (w *world) judgeSeen() []finding {
	var out []finding
	for _, who := range w.people.all {
		events := w.ledger.of(who.name)
		for _, b := range who.staying() {
			shown, loaded := b.view()
			for _, e := range events {
				// "Not promised: … delivery past expiresAt"; what is ephemeral has no replay.
				if e.strict() && !shown.has(e.n) && !loaded.has(e.n) {
					out = append(out, finding{fmt.Sprintf("%s misses %s", b.name, w.describe(e)), b})
				}
			}
		}
	}
	return out
}

// judgeForsaken finds pairs that no browser of the user ever had and of which he was not notified.
func (w *world) judgeForsaken() []finding {
	notices := w.hook.taken()
	var out []finding
	for _, who := range w.people.all {
		var seen bits
		for _, b := range who.browsersEver() {
			shown, loaded := b.view()
			seen.add(shown)
			seen.add(loaded)
		}
		for _, e := range w.ledger.of(who.name) {
			if !e.strict() || e.quiet || seen.has(e.n) {
				continue
			}
			if _, notified := notices[pair{e.n, who.name}]; !notified {
				out = append(out, finding{text: fmt.Sprintf("%s (%s): neither delivered nor notified: %s", who.name, who.habit, w.describe(e))})
			}
		}
	}
	return out
}

// judgeTwice finds events that an application got twice: handed over twice, or once more after its page
// had loaded them.
func (w *world) judgeTwice() (bad []finding, loadedAgain int) {
	events := w.ledger.all()
	for _, b := range w.people.everyone() {
		shown := map[int]int{}
		for _, one := range b.showings() {
			e := events[one.n]
			shown[one.n]++
			switch {
			case shown[one.n] > 1:
				bad = append(bad, finding{fmt.Sprintf("%s was shown twice, at %s again: %s", b.name, w.clock(one.at), w.describe(e)), b})
			case !one.loaded:
			case w.resumedFurtherBack(e, b, one):
				// "Not promised: … the place of events that were committed while a user connected …
				// After a resumption further back: that an event is not shown once more which was
				// loaded with the page."
				loadedAgain++
			default:
				bad = append(bad, finding{fmt.Sprintf("%s loaded it with its page and was shown it at %s: %s", b.name, w.clock(one.at), w.describe(e)), b})
			}
		}
	}
	return bad, loadedAgain
}

// resumedFurtherBack says whether an event that a page had loaded may come as an event too: it was on its
// way when that page connected, or something that makes a relay resume further back happened since.
func (w *world) resumedFurtherBack(e event, b *browser, one showing) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, load := range b.loads {
		if !load.events.has(e.n) {
			continue
		}
		if load.welcome.Before(e.committed.Add(longBefore)) {
			return true
		}
	}
	if w.store.troubles.touch(e.committed, one.at) {
		return true
	}
	for _, n := range w.relays {
		if n.troubles.touch(e.committed, one.at) {
			return true
		}
	}
	return false
}

// judgeOrder finds events that a browser got before one that was committed earlier.
func (w *world) judgeOrder() []finding {
	events := w.ledger.all()
	var out []finding
	for _, b := range w.people.everyone() {
		last := event{}
		for _, one := range b.showings() {
			e := events[one.n]
			// What is ephemeral has no seq, and so no place. What a page had loaded before has none
			// either: "the place of events that were committed while a user connected for the first
			// time (he loads them with the page)", and see resumedFurtherBack.
			if e.ephemeral || one.loaded || e.order == 0 {
				continue
			}
			if e.order < last.order {
				out = append(out, finding{fmt.Sprintf("%s was shown at %s, after #%d: %s", b.name, w.clock(one.at), last.order, w.describe(e)), b})
				continue
			}
			last = e
		}
	}
	return out
}

// judgeNeedless finds notifications of what a browser had acked in time.
func (w *world) judgeNeedless() (bad []finding, again, crossed int) {
	events := w.ledger.all()
	browsers := map[string][]*browser{}
	for _, who := range w.people.all {
		browsers[who.name] = who.browsersEver()
	}
	for p, n := range w.hook.taken() {
		for _, b := range browsers[p.user] {
			ack, ok := b.ackOf(p.n)
			if !ok {
				continue
			}
			e := events[p.n]
			for _, got := range n.taken {
				switch {
				case w.forgotten(e, got):
					again++
				case !w.keptInTime(ack, got):
					// "Not promised: … that nobody is ever notified of what he has just seen (ack
					// and grace can cross)."
					crossed++
				default:
					text := fmt.Sprintf("%s acked it at %s to %s, handed over at %s, notified at %s: %s", b.name,
						w.clock(ack.at), ack.conn.server.name, w.clock(got.handed), w.clock(got.at), w.describe(e))
					bad = append(bad, finding{text, b})
				}
			}
		}
	}
	return bad, again, crossed
}

// forgotten says whether Redis lost everything after an event was committed and before it was notified.
// "After a total loss of Redis: that what was committed in the five minutes before it, or since the oldest
// event then waiting for notification, is not notified again."
func (w *world) forgotten(e event, got receipt) bool {
	return w.store.emptied.touch(e.committed, got.at)
}

// keptInTime says whether an ack was surely known to the notifiers before the grace was over: five seconds
// before its server's death, and before the entry's `at` + grace, with nothing broken on its way.
func (w *world) keptInTime(ack ackAt, got receipt) bool {
	known := ack.at.Add(ackedWithin)
	switch {
	case known.After(got.handed.Add(grace)):
	case ack.conn.endedBy(ack.at.Add(arrivedWithin)):
	case ack.conn.network.troubles.touch(ack.at.Add(-arrivedWithin), ack.at.Add(arrivedWithin)):
	case ack.conn.server.troubles.touch(ack.at.Add(-arrivedWithin), known):
	case w.store.troubles.touch(ack.at.Add(-arrivedWithin), known):
	default:
		return true
	}
	return false
}

// judgeRepeated finds notifications that were taken, answered, and sent once more without a cause.
func (w *world) judgeRepeated() (bad []finding, excepted int) {
	events := w.ledger.all()
	for p, n := range w.hook.taken() {
		for i := 1; i < len(n.taken); i++ {
			before, now := n.taken[i-1], n.taken[i]
			if !before.answered || w.notifierBroken(before.at.Add(-5*time.Second), now.at) {
				excepted++ // the same webhook id: at most a duplicate
				continue
			}
			bad = append(bad, finding{text: fmt.Sprintf("%s was notified at %s and again at %s of %s", p.user, w.clock(before.at), w.clock(now.at), w.describe(events[p.n]))})
		}
	}
	return bad, excepted
}

func (w *world) notifierBroken(from, to time.Time) bool {
	if w.store.troubles.touch(from, to) {
		return true
	}
	return slices.ContainsFunc(w.notifiers, func(n *node) bool { return n.troubles.touch(from, to) })
}

// judgeBroken collects what no part may do, whatever is broken.
func (w *world) judgeBroken() []string {
	out := append([]string{}, w.unstopped...)
	if w.left != "" {
		out = append(out, "still open at the end: "+w.left)
	}
	out = append(out, w.dead...)
	for _, b := range w.people.everyone() {
		b.mu.Lock()
		out = append(out, b.faults...)
		b.mu.Unlock()
	}
	w.hook.mu.Lock()
	out = append(out, w.hook.faults...)
	w.hook.mu.Unlock()
	out = append(out, w.publishing.faults...)
	for _, n := range w.nodes() {
		for i, life := range n.lives {
			for _, line := range strings.Split(life.Output(), "\n") {
				if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.Contains(line, "DATA RACE") {
					out = append(out, fmt.Sprintf("%s, life %d: %s", n.name, i+1, line))
				}
			}
		}
	}
	return out
}

// longestGaps are the longest times from commit to a browser that wanted to be connected all the while: on
// any network, and on the one that is never broken.
func (w *world) longestGaps() (all, calm gap) {
	events := w.ledger.all()
	for _, who := range w.people.all {
		if who.habit != steady {
			continue
		}
		for _, b := range who.browsersEver() {
			for _, one := range b.showings() {
				e := events[one.n]
				if one.loaded || e.committed.IsZero() {
					continue
				}
				g := gap{took: one.at.Sub(e.committed), text: fmt.Sprintf("%s, event #%d committed at %s", b.name, e.order, w.clock(e.committed))}
				if g.took > all.took {
					all = g
				}
				if b.network == w.networks[0] && g.took > calm.took {
					calm = g
				}
			}
		}
	}
	return all, calm
}

func (b *browser) showings() []showing {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.shown)
}

func (b *browser) ackOf(n int) (ackAt, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ack, ok := b.acks[n]
	return ack, ok
}

func (one *person) browsersEver() []*browser {
	one.mu.Lock()
	defer one.mu.Unlock()
	return slices.Clone(one.browsers)
}

func (w *world) describe(e event) string {
	return fmt.Sprintf("event #%d %s, sent %s, committed %s, to %d", e.order, e.id, w.clock(e.sent), w.clock(e.committed), len(e.to))
}
