package socket_test

import (
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/socket"
)

// Redis loses a probe (it went back a moment): the next one says that the way is free again.
func TestAProbeThatRedisLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.EmbeddedRedis(t))
	a := r.start("a", func(c *socket.Config) {
		c.ProbeInterval, c.ProbeTimeout = 300*time.Millisecond, 100*time.Millisecond
		c.InboxEntries, c.InboxGrace = 1, time.Hour
	}).ready()
	c := connect(t, a, "u", hello{"quiet": true})
	c.ackAll()
	c.mu.Lock()
	c.quiet = true
	c.mu.Unlock()
	r.publish("held", "u") // the tracker is full: nothing is read
	c.sees("held")
	testkit.Eventually(t, patience, "a probe waits", func() bool {
		b, err := r.inbox.Backlog(t.Context(), a.Instance())
		return err == nil && b.Length > 1 && a.Ready() != nil
	})
	msgs, err := r.rdb.XRange(t.Context(), inbox.Key(a.Instance()), "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range msgs[1:] {
		if err := r.rdb.XDel(t.Context(), inbox.Key(a.Instance()), m.ID).Err(); err != nil {
			t.Fatal(err)
		}
	}
	c.ackAll()
	testkit.Eventually(t, patience, "ready again", func() bool { return a.Ready() == nil })
	r.settled(a.Instance())
}
