package relay_test

import (
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

func TestRoute_ConnectedUserGetsEventsInOrder(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		a := w.instance("a")
		a.connect("alice")
		w.relay(quick("r1")).ready()
		for n := 1; n <= 50; n++ {
			w.publish(event(n, "alice"))
		}
		got := a.await(10*time.Second, "alice", 50)
		checkOrder(t, got, 1, 50)
		checkSeqs(t, got)
	})
}

func TestRoute_OfflineUserIsNotified(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		w.relay(quick("r1")).ready()
		e := event(7, "bob")
		w.publish(e)
		eventually(t, 5*time.Second, "notification", func() bool { return len(w.notified()) == 1 })
		if n := w.notified()[0]; n.ID != e.ID || n.Pair.User != "bob" || n.Pair.Seq != 0 {
			t.Fatalf("notified %+v", n)
		}
	})
}
