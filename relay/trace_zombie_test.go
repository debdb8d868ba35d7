package relay_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// frozen holds a relay still in the moment in which it has looked at its clock and
// is about to send the pipeline that appends, until thaw: then the pipeline goes out.
type frozen struct {
	fault
	at, thawed chan struct{}
	sent       chan struct{}
	once       sync.Once
}

func freezeBefore(t testing.TB) *frozen {
	f := &frozen{at: make(chan struct{}), thawed: make(chan struct{}), sent: make(chan struct{})}
	var once sync.Once
	f.set(func(cmds []redis.Cmder, send func([]redis.Cmder) error) ([]redis.Cmder, error) {
		if appends(cmds) == 0 {
			return cmds, nil
		}
		err := errDead
		once.Do(func() {
			f.hold.Store(&f.thawed)
			close(f.at)
			<-f.thawed
			err = send(cmds)
			close(f.sent)
			f.dead.Store(true) // what happens afterwards is not of interest here
		})
		return nil, err
	})
	t.Cleanup(f.wake)
	return f
}

func (f *frozen) wake() { f.once.Do(func() { close(f.thawed) }) }

func (f *frozen) thaw() {
	f.wake()
	<-f.sent
}

// T21: a zombie's plain append comes after the new owner's careful one. The log
// holds the event twice, under two seqs, which session and client tell by its id;
// the marker is not the zombie's to move.
func TestTrace_T21_ZombieAppends(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		a := w.instance("a")
		a.connect("u")
		f := freezeBefore(t)
		w.relay(quick("zombie"), f.hook).ready()
		e1, e2 := event(1, "u"), event(2, "u")
		w.publish(e1)
		<-f.at
		w.relay(quick("r2"))
		got := a.await(15*time.Second, "u", 1)
		if got[0].ID != e1.ID || got[0].Pair.Seq != 1 {
			t.Fatalf("got %+v", got)
		}
		stop := w.watchMarker()
		f.thaw()
		w.publish(e2)
		got = a.await(10*time.Second, "u", 2)
		stop()
		if got[1].ID != e2.ID || got[1].Pair.Seq != 3 {
			t.Errorf("got %+v, want event 2 with seq 3", got[1])
		}
		checkOneIDPerSeq(t, a.got)
		if ids := w.log("u"); len(ids) != 4 || ids[1] != e1.ID || ids[2] != e1.ID || ids[3] != e2.ID {
			t.Errorf("log %v", ids)
		}
		if w.owner() != "r2" {
			t.Errorf("owner is %s", w.owner())
		}
	})
}

// log is a user's log, its sentinel first.
func (w *world) log(u string) []protocol.EventID {
	w.t.Helper()
	raw, err := w.rdb.LRange(context.Background(), "user:{"+u+"}:log", 0, -1).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	ids := make([]protocol.EventID, len(raw))
	for i, s := range raw {
		copy(ids[i][:], s)
	}
	return ids
}

// T22: two relays append the same event carefully. The log holds it once.
func TestTrace_T22_TwoCarefulAppends(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		a := w.instance("a")
		a.connect("u")
		e1 := event(1, "u")
		w.publish(e1) // before any relay: it comes with the scan, carefully
		f := freezeBefore(t)
		w.relay(quick("zombie"), f.hook)
		<-f.at
		w.relay(quick("r2"))
		a.await(15*time.Second, "u", 1)
		f.thaw()
		if ids := w.log("u"); len(ids) != 2 || ids[1] != e1.ID {
			t.Errorf("log %v", ids)
		}
		for _, d := range a.read() {
			if d.Pair.Seq != 1 {
				t.Errorf("got %+v", d)
			}
		}
	})
}

// T24: the event is routed while its user has no log, so he is notified; he
// connects; the relay dies before the marker. The event appears at most once more.
func TestTrace_T24_ConnectsBeforeTheMarker(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		a := w.instance("a")
		f := &fault{}
		f.set(func(cmds []redis.Cmder, send func([]redis.Cmder) error) ([]redis.Cmder, error) {
			if !isNotice(cmds) {
				return cmds, nil
			}
			err := send(cmds)
			f.dead.Store(true)
			return nil, err
		})
		w.relay(quick("r1"), f.hook).ready()
		w.publish(event(1, "u"))
		eventually(t, 10*time.Second, "a notification", func() bool { return len(w.notified()) == 1 })
		a.connect("u")
		w.relay(quick("r2"))
		a.await(15*time.Second, "u", 1)
		w.publish(event(2, "u"))
		got := a.await(10*time.Second, "u", 2)
		checkOrder(t, got, 1, 2)
		checkSeqs(t, got)
		if len(a.got) != 2 || len(w.notified()) != 1 {
			t.Errorf("%d deliveries, %d notifications", len(a.got), len(w.notified()))
		}
	})
}
