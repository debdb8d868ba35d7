package main

import (
	"time"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// kind is a kind of fault.
type kind struct {
	name        string
	weight      int
	least, most time.Duration
	// strike begins it, and plans its end; false: no target is free now.
	strike func(w *world, f fault) bool
}

const (
	ms    = time.Millisecond
	lease = 5 * time.Second
)

// kinds are all there are. What is "past the lease" lasts at least a second longer than it.
var kinds []kind

func init() { // not in the declaration, since what strikes looks kinds up
	kinds = []kind{
		{"socket-kill", 6, 0, 8 * time.Second, func(w *world, f fault) bool { return w.kill(w.sockets, 1, f) }},
		{"socket-kill-two", 2, 0, 5 * time.Second, func(w *world, f fault) bool { return w.kill(w.sockets, 2, f) }},
		{"socket-freeze", 5, lease + time.Second, 12 * time.Second, func(w *world, f fault) bool { return w.freeze(w.sockets, 1, f) }},
		{"socket-blink", 2, 500 * ms, 4 * time.Second, func(w *world, f fault) bool { return w.freeze(w.sockets, 1, f) }},
		{"socket-rolling", 2, 0, 0, func(w *world, f fault) bool { return w.roll(w.sockets) }},
		{"relay-kill", 5, 0, 6 * time.Second, func(w *world, f fault) bool { return w.kill(w.relays, 1, f) }},
		{"relay-freeze", 4, lease + time.Second, 12 * time.Second, func(w *world, f fault) bool { return w.freeze(w.relays, 1, f) }},
		{"relay-freeze-all", 1, lease + time.Second, 3 * lease, func(w *world, f fault) bool { return w.freeze(w.relays, 2, f) }},
		{"relay-rolling", 2, 0, 0, func(w *world, f fault) bool { return w.roll(w.relays) }},
		{"notifier-kill", 3, 0, 6 * time.Second, func(w *world, f fault) bool { return w.kill(w.notifiers, 1, f) }},
		{"notifier-freeze", 2, lease, 15 * time.Second, func(w *world, f fault) bool { return w.freeze(w.notifiers, 1, f) }},
		{"notifier-rolling", 1, 0, 0, func(w *world, f fault) bool { return w.roll(w.notifiers) }},
		{"redis-restart", 2, 0, 0, (*world).restartStore},
		{"redis-loss", 2, 0, 0, (*world).loseStore},
		{"redis-empty", 1, 0, 0, (*world).emptyStore},
		{"redis-freeze", 2, 500 * ms, 2 * lease, (*world).freezeStore},
		{"redis-cut", 4, 0, 0, func(w *world, f fault) bool { return w.cut(w.redisLinks(), f) }},
		{"redis-blackhole", 3, time.Second, 12 * time.Second, func(w *world, f fault) bool { return w.breakLink(w.redisLinks(), f, (*testkit.Proxy).BlackHole) }},
		{"redis-oneway", 3, time.Second, 10 * time.Second, func(w *world, f fault) bool { return w.breakLink(w.redisLinks(), f, dropOne(f)) }},
		{"redis-lost-reply", 4, 3 * time.Second, 3 * time.Second, func(w *world, f fault) bool { return w.breakLink(w.redisLinks(), f, swallowOne(f)) }},
		{"mongo-cut", 3, 0, 0, func(w *world, f fault) bool { return w.cut(w.mongoLinks(), f) }},
		{"mongo-blackhole", 2, time.Second, 10 * time.Second, func(w *world, f fault) bool { return w.breakLink(w.mongoLinks(), f, (*testkit.Proxy).BlackHole) }},
		{"mongo-oneway", 2, time.Second, 8 * time.Second, func(w *world, f fault) bool { return w.breakLink(w.mongoLinks(), f, dropOne(f)) }},
		{"client-cut", 3, 0, 0, (*world).cutNetwork},
		{"client-blackhole", 3, 2 * time.Second, 15 * time.Second, func(w *world, f fault) bool { return w.breakNetwork(f, (*testkit.Proxy).BlackHole) }},
		{"client-oneway", 4, 2 * time.Second, 12 * time.Second, func(w *world, f fault) bool { return w.breakNetwork(f, dropOne(f)) }},
		{"client-drop", 3, 0, 0, (*world).dropCrowd},
	}
}

// dropOne loses what goes in one direction.
func dropOne(f fault) func(*testkit.Proxy) {
	return func(p *testkit.Proxy) { p.Drop(testkit.Direction(f.pick >> 8 % 2)) }
}

// swallowOne has a command done whose answer nobody gets.
func swallowOne(f fault) func(*testkit.Proxy) {
	commands := []string{"", "xadd", "xack", "xreadgroup", "rpushx", "evalsha"}
	command := commands[f.pick>>8%uint64(len(commands))]
	return func(p *testkit.Proxy) {
		if command == "" {
			p.SwallowReply()
			return
		}
		p.SwallowReplyTo(command)
	}
}

func kindByName(name string) *kind {
	for i := range kinds {
		if kinds[i].name == name {
			return &kinds[i]
		}
	}
	return nil
}

func kindNames() []string {
	var out []string
	for _, k := range kinds {
		out = append(out, k.name)
	}
	return out
}
