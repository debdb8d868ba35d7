package socket_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/socket"
)

func TestDrain(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a", func(c *socket.Config) { c.DrainWindow = 400 * time.Millisecond }).ready()
		b := r.start("b").ready()
		id := a.Instance()
		var all []*client
		for i := range 10 {
			all = append(all, connect(t, a, fmt.Sprintf("u%d", i)))
		}
		half := connect(t, a, "half", hello{"quiet": true})
		half.ackAll()
		half.mu.Lock()
		half.quiet = true
		half.mu.Unlock()
		env := r.publish("left", "half")
		half.sees("left")
		both := connect(t, b, "u0")

		begin := time.Now()
		a.stop()
		testkit.Eventually(t, patience, "not ready", func() bool { return a.Ready() != nil })
		for _, c := range append(all, half) {
			f := c.find("goaway", func(f frame) bool { return f.Type == "goaway" })
			if f.ReconnectAfter > 400 {
				t.Errorf("asked to come back after %d ms", f.ReconnectAfter)
			}
			c.closedWith(protocol.CloseRestart)
		}
		if err := a.wait(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("took %v", took)
		}
		dial(t, a.url(), hello{"token": token("u")}).closedWith(protocol.CloseRestart)
		r.waitNotified("half", env)
		if n := r.rdb.Exists(t.Context(), inbox.Key(id)).Val(); n != 0 {
			t.Error("the inbox is left")
		}
		leases, err := r.leases.List(t.Context())
		if err != nil || len(leases) != 1 {
			t.Errorf("leases: %v %v", leases, err)
		}
		r.publish("e1", "u0")
		both.sees("e1")
		if n := len(r.notified()); n != 1 {
			t.Errorf("%d notified, want 1", n)
		}
	})
}

func TestDrainWithoutRedisEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.EmbeddedRedis(t))
	where, proxy := r.proxied()
	a := r.startAt(where, "a").ready()
	connect(t, a, "u")
	proxy.Refuse()
	begin := time.Now()
	a.stop()
	if err := a.wait(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestDrainBeforeRegistration(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.EmbeddedRedis(t))
	where, proxy := r.proxied()
	proxy.Refuse()
	a := r.startAt(where, "a")
	dial(t, a.url(), hello{"token": token("u")}).closedWith(protocol.CloseOverloaded)
	a.stop()
	if err := a.wait(); err != nil {
		t.Fatal(err)
	}
}
