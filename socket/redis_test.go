package socket_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/socket"
)

// An entry that Redis gave out, in a reply that never came, while the connection lives on.
func TestLostRepliesAreTakenAgain(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a", func(c *socket.Config) { c.TakeLostInterval = 100 * time.Millisecond }).ready()
		c := connect(t, a, "u")
		id, e1 := a.Instance(), r.entryFor(r.event("e1", "u"), "u")
		_, err := r.rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			inbox.QueueAppend(t.Context(), p, id, e1)
			p.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: inbox.Group, Consumer: string(id), Streams: []string{inbox.Key(id), ">"}, Block: -1})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		c.sees("e1")
		r.settled(id)
	})
}

// The same, and its body is gone: Redis 7 drops it when it is claimed, and says so only there.
func TestLostRepliesOfLostBodiesAreCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.RealRedis(t))
	reg := prometheus.NewRegistry()
	a := r.start("a", func(c *socket.Config) {
		c.TakeLostInterval, c.Metrics = 100*time.Millisecond, reg
		c.ProbeInterval = time.Hour // a probe that is trimmed with them would be counted too
	}).ready()
	id := a.Instance()
	r.settled(id) // the first probe is through
	env := r.event("e1", "u")
	_, err := r.rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		for range 2 {
			inbox.QueueAppend(t.Context(), p, id, r.entryFor(env, "u"))
		}
		p.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: inbox.Group, Consumer: string(id), Streams: []string{inbox.Key(id), ">"}, Block: -1})
		p.XTrimMaxLen(t.Context(), inbox.Key(id), 0)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.settled(id)
	testkit.Eventually(t, patience, "both are counted", func() bool {
		return gather(t, reg, "lastmile_socket_inbox_entries_lost_total") == 2
	})
}

// poison panics where a real store never would.
type poison struct{ *memory }

func (p poison) Remember(v *protocol.Envelope) {
	if strings.Contains(string(v.Body), "poison") {
		panic("poisoned")
	}
}

func TestAPoisonousEntryIsPutAside(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.EmbeddedRedis(t))
	a := r.startWith(r.redis.Server(), poison{r.store}, "a", func(c *socket.Config) { c.TakeLostInterval = 50 * time.Millisecond }).ready()
	c := connect(t, a, "u")
	r.publish("poison", "u")
	r.publish("e1", "u")
	c.sees("poison", "e1") // the first from the log: its entry is dead, not the event
	testkit.Eventually(t, 2*patience, "dead letter", func() bool { return r.rdb.XLen(t.Context(), inbox.Dead).Val() == 1 })
	r.settled(a.Instance())
}

func TestRedisRestartsEmpty(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.OwnRedis(t))
	a := r.start("a").ready()
	id := a.Instance()
	c := connect(t, a, "u")
	r.publish("e1", "u")
	c.sees("e1")
	r.redis.Restart(t)
	a.fenced(id)
	if w := c.welcome(2); w.Recovered || w.Seq != 0 {
		t.Errorf("welcome: %+v", w)
	}
	r.publish("e2", "u")
	c.sees("e1", "e2")
	r.settled(a.Instance())
	if !c.open() {
		t.Error("closed")
	}
}

func TestTrace_T46_RedisFrozenForTwoLeases(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.OwnRedis(t))
	a := r.start("a", func(c *socket.Config) {
		c.Lease, c.BeatInterval, c.CutOff = 700*time.Millisecond, 100*time.Millisecond, 500*time.Millisecond
	}).ready()
	id := a.Instance()
	c := connect(t, a, "u")
	r.redis.Freeze(t)
	testkit.Eventually(t, patience, "not ready", func() bool { return a.Ready() != nil })
	frozen := time.Now()
	testkit.Eventually(t, patience, "two leases", func() bool { return time.Since(frozen) > 1400*time.Millisecond })
	r.redis.Thaw(t)
	testkit.Eventually(t, patience, "ready again", func() bool { return a.Ready() == nil })
	// Meanwhile somebody took it for dead, and notified instead: the event is in the log.
	r.append(r.event("e1", "u"), "u")
	r.publish("e2", "u")
	c.sees("e1", "e2")
	if a.Instance() != id || !c.open() {
		t.Errorf("instance %s became %s; open: %v", id, a.Instance(), c.open())
	}
}

func TestLongCutOffAsksClientsToMove(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.EmbeddedRedis(t))
	where, proxy := r.proxied()
	a := r.startAt(where, "a", func(c *socket.Config) { c.LongCutOff = time.Second }).ready()
	c := connect(t, a, "u")
	proxy.Refuse()
	f := c.find("goaway", func(f frame) bool { return f.Type == "goaway" })
	if f.ReconnectAfter > 1000 || !c.open() {
		t.Errorf("after %d ms, open: %v", f.ReconnectAfter, c.open())
	}
	proxy.Heal()
	testkit.Eventually(t, patience, "ready again", func() bool { return a.Ready() == nil })
	r.publish("e1", "u")
	c.sees("e1")
}
