package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

const (
	apiKey      = "chaos-key-0123456789"
	tokenSecret = "chaos-token-secret-of-at-least-32-bytes"
	hookSecret  = "chaos-webhook-secret-of-32-bytes"
	grace       = 10 * time.Second // notify.grace
)

// world is everything that runs.
type world struct {
	// fixed after construction
	t         testing.TB
	ctx       context.Context
	cfg       Config
	began     time.Time
	store     *store
	mongoURL  string
	binary    string
	relays    []*node
	sockets   []*node
	notifiers []*node
	networks  []*network
	ledger    *ledger
	hook      *hook
	people    *people
	sight     *sight

	// owned by the timeline
	line       timeline
	done       int            // faults begun
	counts     map[string]int // by kind
	left       string         // what was open at the end
	dead       []string       // letters
	publishing *publishing    // when it is over
	target     string         // of the fault that was begun last
	unstopped  []string       // processes that did not end when asked to
}

// Run plays one run on t and judges it. It fails t only where nothing could be judged.
func Run(t testing.TB, cfg Config) *Report {
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ctx: t.Context(), cfg: cfg, began: time.Now(), counts: map[string]int{}}
	w.build()
	w.settleIn()
	w.play()
	return w.judge()
}

// build starts servers and processes; nothing is published yet.
func (w *world) build() {
	w.binary = ownBinary(w.t, w.cfg.Binary)
	w.store = newStore(w.t)
	w.mongoURL = w.cfg.MongoURL
	if w.mongoURL == "" {
		w.mongoURL = startMongo(w.t, w.binary)
	}
	w.ledger = newLedger(w.t, w.mongoURL)
	w.hook = newHook(w.t, w.cfg.Seed, w.ledger)
	for i := range 2 {
		w.relays = append(w.relays, w.addNode("relay", i))
	}
	for i := range 3 {
		w.sockets = append(w.sockets, w.addNode("socket", i))
	}
	for i := range 2 {
		w.notifiers = append(w.notifiers, w.addNode("notify", i))
	}
	for _, n := range w.nodes() {
		n.start(w.t)
	}
	for i := range 4 {
		w.networks = append(w.networks, newNetwork(w.t, i, w.sockets))
	}
}

func (w *world) nodes() []*node {
	all := append([]*node{}, w.relays...)
	return append(append(all, w.sockets...), w.notifiers...)
}

func (w *world) addNode(command string, i int) *node {
	n := &node{name: fmt.Sprintf("%s-%d", command, i+1), binary: w.binary}
	n.redis = &link{Proxy: testkit.NewProxy(w.t, w.store.addr), node: n}
	internal := testkit.FreeAddr(w.t)
	n.internal = "http://" + internal
	n.args = []string{command, "--name", n.name, "--internal-listen", internal, "--redis-url", "redis://" + n.redis.Addr()}
	if command != "notify" {
		n.mongo = &link{Proxy: testkit.NewProxy(w.t, hostOf(w.mongoURL)), node: n}
		n.args = append(n.args, "--mongo-url", through(w.mongoURL, n.mongo.Addr()))
	}
	switch command {
	case "socket":
		n.public = testkit.FreeAddr(w.t)
		n.args = append(n.args, "--listen", n.public, "--token-secret", tokenSecret, "--api-key", apiKey, "--drain", "3s")
	case "notify":
		secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte(hookSecret))
		n.args = append(n.args, "--webhook-url", w.hook.url, "--webhook-secret", secret, "--notify-grace", grace.String())
	}
	return n
}

// ownBinary is a copy of the built command: another test that builds a newer one removes the first, and
// what was killed here is to be started again.
func ownBinary(t testing.TB, given string) string {
	if given == "" {
		given = testkit.Binary(t)
	}
	built, err := os.ReadFile(given) // #nosec G304 -- whoever runs this names it
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(t.TempDir(), "lastmile")
	if err := os.WriteFile(own, built, 0o700); err != nil { // #nosec G306 -- it is to be run
		t.Fatal(err)
	}
	return own
}

// startMongo runs the embedded servers as a process of their own, of which only the MongoDB is used.
func startMongo(t testing.TB, binary string) string {
	redis, mongo := testkit.FreeAddr(t), testkit.FreeAddr(t)
	testkit.Start(t, exec.Command(binary, "embedded", "--redis-listen", redis, "--mongo-listen", mongo))
	testkit.Eventually(t, 20*time.Second, "the embedded MongoDB listens", func() bool {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", mongo)
		return err == nil && conn.Close() == nil
	})
	return "mongodb://" + mongo + "/lastmile?directConnection=true"
}

func hostOf(mongoURL string) string {
	u, err := url.Parse(mongoURL)
	if err != nil {
		return mongoURL // outbox says what is wrong with it
	}
	return u.Host
}

// through is the same URL by way of another address. Without directConnection the driver would go to where
// the server says it is.
func through(mongoURL, addr string) string {
	u, err := url.Parse(mongoURL)
	if err != nil {
		return mongoURL
	}
	u.Host = addr
	q := u.Query()
	q.Set("directConnection", "true")
	u.RawQuery = q.Encode()
	return u.String()
}

// settleIn waits until all processes are ready, and begins to watch and to judge.
func (w *world) settleIn() {
	for _, n := range w.nodes() {
		testkit.Eventually(w.t, 40*time.Second, n.name+" is ready", func() bool {
			if n.ended() {
				w.t.Fatalf("%s ended at its start:\n%s", n.name, n.life.Output())
			}
			return n.ready(w.ctx)
		})
	}
	w.ledger.follow()
	w.sight = newSight(w.t, w.store.addr)
	w.began = time.Now()
	w.people = newPeople(w)
	w.watch()
}

// warmUp is how long everybody has to connect before anything breaks.
const warmUp = 6 * time.Second

// play is the run: faults, then quiet until nothing is open.
func (w *world) play() {
	schedule := plan(w.cfg)
	publishing := startPublishers(w)
	for i, f := range schedule {
		w.line.after(warmUp+f.at, func() { w.strike(i+1, f) })
	}
	w.line.run(w.ctx, func() bool { return w.done == len(schedule) && w.whole() && time.Since(w.began) >= warmUp+w.cfg.For })
	w.say("all faults are over; everybody comes back, publishers finish")
	w.people.gather()
	w.hook.better()
	publishing.stop()
	limit := time.Now().Add(w.cfg.Settle)
	var open string
	next := time.Now()
	w.line.run(w.ctx, func() bool {
		if time.Now().Before(next) {
			return false
		}
		next = time.Now().Add(time.Second)
		open = w.open(publishing)
		return open == "" || time.Now().After(limit)
	})
	if open == "" {
		w.say("nothing is open")
	} else {
		w.say("still open at the limit: %s", open)
	}
	w.left = open
	w.dead = w.sight.dead(w.ctx)
	w.people.stop()
	publishing.wait()
	w.publishing = publishing
}

// whole says whether no fault is at work.
func (w *world) whole() bool {
	for _, n := range w.nodes() {
		if n.busy || n.redis.busy || n.mongo != nil && n.mongo.busy {
			return false
		}
	}
	for _, n := range w.networks {
		if n.busy {
			return false
		}
	}
	return !w.store.busy
}

// open says what the run still waits for; "": nothing.
func (w *world) open(p *publishing) string {
	if n := p.left(); n > 0 {
		return fmt.Sprintf("%d publishers", n)
	}
	for _, n := range w.nodes() {
		if n.ended() || !n.ready(w.ctx) {
			return n.name + " is not ready"
		}
	}
	if missing := len(w.judgeSeen()); missing > 0 {
		return fmt.Sprintf("%d events that a browser misses", missing)
	}
	if waiting := w.sight.waiting(w.ctx); waiting != "" {
		return waiting
	}
	if forsaken := len(w.judgeForsaken()); forsaken > 0 {
		return fmt.Sprintf("%d pairs neither delivered nor notified", forsaken)
	}
	return ""
}

func (w *world) say(format string, args ...any) {
	fmt.Fprintf(w.cfg.Out, "%s  %s\n", w.clock(time.Now()), fmt.Sprintf(format, args...))
}

// clock is a time as seconds of the run.
func (w *world) clock(at time.Time) string { return fmt.Sprintf("%7.2fs", at.Sub(w.began).Seconds()) }

// keepLogs writes what the processes said to the folder for it.
func (w *world) keepLogs() {
	if w.cfg.Logs == "" {
		return
	}
	if err := os.MkdirAll(w.cfg.Logs, 0o750); err != nil {
		w.say("keep logs: %v", err)
		return
	}
	for _, n := range w.nodes() {
		var all []byte
		for i, life := range n.lives {
			all = fmt.Appendf(all, "==== life %d, pid %d\n%s\n", i+1, life.Pid(), life.Output())
		}
		if err := os.WriteFile(filepath.Join(w.cfg.Logs, n.name+".log"), all, 0o600); err != nil {
			w.say("keep logs: %v", err)
		}
	}
	w.say("the output of all processes is in %s", w.cfg.Logs)
}
