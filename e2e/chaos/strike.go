package main

import (
	"fmt"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// strike does one fault, as soon as a target for it is free.
func (w *world) strike(number int, f fault) {
	if !f.kind.strike(w, f) {
		w.line.after(300*ms, func() { w.strike(number, f) })
		return
	}
	w.done++
	w.counts[f.kind.name]++
	w.say("fault %d: %s %s", number, f.kind.name, w.target)
}

// free picks `count` nodes that no fault is at work on; nil: there are not so many.
func free(nodes []*node, count int, f fault) []*node {
	var out []*node
	for i := range nodes {
		n := nodes[(int(f.pick%64)+i)%len(nodes)]
		if !n.busy && !n.ended() && len(out) < count {
			out = append(out, n)
		}
	}
	if len(out) < count {
		return nil
	}
	return out
}

// kill is kill -9, and a start after a while.
func (w *world) kill(nodes []*node, count int, f fault) bool {
	victims := free(nodes, count, f)
	w.target = fmt.Sprintf("%v for %s", names(victims), short(f.last))
	for _, n := range victims {
		n.busy = true
		trouble := n.troubles.begin("kill")
		n.life.Kill(w.t)
		w.line.after(f.last, func() {
			n.start(w.t)
			n.busy = false
			w.line.after(mend, func() { n.troubles.end(trouble, time.Now()) })
		})
	}
	return victims != nil
}

// freeze is SIGSTOP, and SIGCONT after a while.
func (w *world) freeze(nodes []*node, count int, f fault) bool {
	victims := free(nodes, count, f)
	w.target = fmt.Sprintf("%v for %s", names(victims), short(f.last))
	for _, n := range victims {
		n.busy = true
		trouble := n.troubles.begin("freeze")
		n.life.Freeze(w.t)
		w.line.after(f.last, func() {
			n.life.Thaw(w.t)
			n.busy = false
			w.line.after(mend, func() { n.troubles.end(trouble, time.Now()) })
		})
	}
	return victims != nil
}

// stopWithin is what a process has between SIGTERM and its end.
const stopWithin = 15 * time.Second

// roll stops one after the other by SIGTERM and starts it again, as a deployment does.
func (w *world) roll(nodes []*node) bool {
	if free(nodes, len(nodes), fault{}) == nil {
		return false
	}
	w.target = fmt.Sprint(names(nodes))
	for _, n := range nodes {
		n.busy = true
	}
	w.rollNext(nodes)
	return true
}

func (w *world) rollNext(left []*node) {
	if len(left) == 0 {
		return
	}
	n := left[0]
	n.life.Terminate(w.t)
	asked := time.Now()
	var look func()
	look = func() {
		switch {
		case n.ended():
			n.start(w.t)
			n.busy = false
			w.line.after(time.Second, func() { w.rollNext(left[1:]) })
		case time.Since(asked) > stopWithin:
			w.unstopped = append(w.unstopped, fmt.Sprintf("%s %s did not end within %s of SIGTERM", w.clock(asked), n.name, stopWithin))
			n.life.Kill(w.t)
			fallthrough
		default:
			w.line.after(50*ms, look)
		}
	}
	look()
}

func (w *world) restartStore(fault) bool {
	return w.onStore("killed, all on disk", w.store.restart)
}

func (w *world) loseStore(f fault) bool {
	if w.store.busy {
		return false
	}
	lost := w.store.lose(f.deep)
	w.target = fmt.Sprintf("killed, lost the last %s (%d bytes)", short(f.deep), lost)
	return true
}

func (w *world) emptyStore(fault) bool { return w.onStore("killed, lost everything", w.store.empty) }

func (w *world) onStore(what string, do func()) bool {
	if w.store.busy {
		return false
	}
	w.target = what
	do()
	return true
}

func (w *world) freezeStore(f fault) bool {
	if w.store.busy {
		return false
	}
	w.target = "for " + short(f.last)
	w.store.busy = true
	trouble := w.store.troubles.begin("freeze")
	w.store.server.Freeze(w.t)
	w.line.after(f.last, func() {
		w.store.server.Thaw(w.t)
		w.store.busy = false
		w.store.troubles.end(trouble, time.Now().Add(mend))
	})
	return true
}

func (w *world) redisLinks() []*link {
	var out []*link
	for _, n := range w.nodes() {
		out = append(out, n.redis)
	}
	return out
}

func (w *world) mongoLinks() []*link {
	var out []*link
	for _, n := range append(append([]*node{}, w.relays...), w.sockets...) {
		out = append(out, n.mongo)
	}
	return out
}

func freeLink(links []*link, f fault) *link {
	for i := range links {
		if l := links[(int(f.pick%64)+i)%len(links)]; !l.busy {
			return l
		}
	}
	return nil
}

// cut resets what connections there are.
func (w *world) cut(links []*link, f fault) bool {
	l := freeLink(links, f)
	if l == nil {
		return false
	}
	w.target = l.node.name
	trouble := l.node.troubles.begin(f.kind.name)
	l.Cut()
	w.line.after(mend, func() { l.node.troubles.end(trouble, time.Now()) })
	return true
}

// breakLink has a fault on one link for a while.
func (w *world) breakLink(links []*link, f fault, how func(*testkit.Proxy)) bool {
	l := freeLink(links, f)
	if l == nil {
		return false
	}
	w.target = fmt.Sprintf("%s for %s", l.node.name, short(f.last))
	l.busy = true
	trouble := l.node.troubles.begin(f.kind.name)
	how(l.Proxy)
	w.line.after(f.last, func() {
		l.Heal()
		l.busy = false
		w.line.after(mend, func() { l.node.troubles.end(trouble, time.Now()) })
	})
	return true
}

func (w *world) freeNetwork(f fault) *network {
	rest := w.networks[1:] // the first is never broken
	for i := range rest {
		if n := rest[(int(f.pick%64)+i)%len(rest)]; !n.busy {
			return n
		}
	}
	return nil
}

func (w *world) cutNetwork(f fault) bool {
	n := w.freeNetwork(f)
	if n == nil {
		return false
	}
	w.target = n.name
	trouble := n.troubles.begin(f.kind.name)
	n.each((*testkit.Proxy).Cut)
	n.troubles.end(trouble, time.Now())
	return true
}

func (w *world) breakNetwork(f fault, how func(*testkit.Proxy)) bool {
	n := w.freeNetwork(f)
	if n == nil {
		return false
	}
	w.target = fmt.Sprintf("%s for %s", n.name, short(f.last))
	n.busy = true
	trouble := n.troubles.begin(f.kind.name)
	n.each(how)
	w.line.after(f.last*3/4, func() { w.people.giveUp(n, f.pick) })
	w.line.after(f.last, func() {
		n.each((*testkit.Proxy).Heal)
		n.busy = false
		n.troubles.end(trouble, time.Now().Add(time.Second))
	})
	return true
}

// dropCrowd ends the connections of a part of the browsers at once, without a word.
func (w *world) dropCrowd(f fault) bool {
	w.target = fmt.Sprintf("%d browsers", w.people.drop(f.pick))
	return true
}

func names(nodes []*node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.name)
	}
	return out
}

func short(d time.Duration) string { return d.Round(10 * ms).String() }
