package main

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// node is one process of the product, over all its lives. Only the goroutine of the timeline touches it,
// but for the spans.
type node struct {
	// fixed after construction
	name     string
	binary   string
	args     []string
	internal string // http://host:port
	public   string // host:port; socket servers only
	redis    *link
	mongo    *link // nil: a notifier has none

	// owned by the timeline
	life   *testkit.Process
	lives  []*testkit.Process
	busy   bool // a fault is at work
	wanted bool // it is meant to run now
	exits  []string

	troubles spans // killed, frozen, cut off: what it was told then may not have been kept
}

// link is a process' way to one of its servers.
type link struct {
	*testkit.Proxy
	node *node
	busy bool
}

func (n *node) start(t testing.TB) {
	n.life = testkit.Start(t, exec.Command(n.binary, n.args...))
	n.lives = append(n.lives, n.life)
	n.wanted = true
}

func (n *node) ended() bool {
	select {
	case <-n.life.Done():
		return true
	default:
		return false
	}
}

// ready asks the process itself.
func (n *node) ready(ctx context.Context) bool {
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(limited, http.MethodGet, n.internal+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	response, err := direct.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode == http.StatusOK
}

// direct keeps no connection: those to a killed process would only be found dead.
var direct = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// watch starts again what ended unasked, as any supervisor would: a process may give up at its start when
// it finds no server.
func (w *world) watch() {
	for _, n := range w.nodes() {
		if n.wanted && !n.busy && n.ended() {
			lines := strings.Split(strings.TrimSpace(n.life.Output()), "\n")
			n.exits = append(n.exits, w.clock(time.Now())+" "+n.name+": "+lines[len(lines)-1])
			w.say("%s ended by itself: %s", n.name, lines[len(lines)-1])
			trouble := n.troubles.begin("exit")
			n.start(w.t)
			w.line.after(mend, func() { n.troubles.end(trouble, time.Now()) })
		}
	}
	w.line.after(500*time.Millisecond, w.watch)
}

// mend is how long after the end of a fault what it touched still counts as touched.
const mend = 3 * time.Second
