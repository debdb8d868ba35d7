package heartbeat_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/protocol"
)

func TestKeeperKeepsTheLease(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id, value := register(t, b.leases, "a")
		var resumed atomic.Int32
		k := b.leases.Keep(id, value, nil, func() { resumed.Add(1) })
		made := k.LastBeat()
		done, stop := keep(t, k)
		eventually(t, "two leases long", func() bool {
			s, _ := b.score(t, id)
			return s > value+2*quick.Lease.Milliseconds()
		})
		if !k.LastBeat().After(made) {
			t.Error("LastBeat stands still")
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := resumed.Load(); n != 0 {
			t.Errorf("resumed %d times without a pause", n)
		}
	})
}

func TestTrace_T46_EndedUnclaimedGoesOn(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id, _ := register(t, b.leases, "a")
		b.setScore(t, id, 1000) // Redis was frozen for two leases
		resumed := make(chan struct{}, 10)
		done, stop := keep(t, b.leases.Keep(id, 1000, nil, func() { resumed <- struct{}{} }))
		<-resumed
		running, err := b.leases.Running(t.Context(), id)
		if err != nil || !running[id] {
			t.Errorf("it does not go on: %v, %v", running, err)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(resumed) != 0 {
			t.Error("one pause, refreshed more than once")
		}
	})
}

// The beat that found the lease ended lost its reply; the next one finds it
// running. It has to refresh all the same.
func TestTrace_T46_EndedAndTheReplyLost(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id, _ := register(t, b.leases, "a")
		b.setScore(t, id, 1000)
		b.faults.swallow.Store(1)
		resumed := make(chan struct{}, 10)
		done, stop := keep(t, b.leases.Keep(id, 1000, nil, func() { resumed <- struct{}{} }))
		<-resumed
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestKeeperIsLost(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id, value := register(t, b.leases, "a")
		k := b.leases.Keep(id, value, nil, func() { t.Error("resumed a claimed lease") })
		done, _ := keep(t, k)
		eventually(t, "it beats", func() bool { s, _ := b.score(t, id); return s > value })
		b.setScore(t, id, 0)
		if err := <-done; !errors.Is(err, heartbeat.ErrLost) {
			t.Errorf("claimed, and %v", err)
		}
	})
}

func TestKeeperWaitsRedisOut(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id, value := register(t, b.leases, "a")
		k := b.leases.Keep(id, value, nil, nil)
		done, stop := keep(t, k)
		eventually(t, "it beats", func() bool { return b.faults.reached.Load() > 2 })
		b.faults.away.Store(true)
		eventually(t, "it tries", func() bool { return b.faults.awayErrs.Load() > 1 })
		before := k.LastBeat()
		tries := b.faults.awayErrs.Load()
		eventually(t, "it tries on", func() bool { return b.faults.awayErrs.Load() > tries+2 })
		if got := k.LastBeat(); !got.Equal(before) {
			t.Errorf("LastBeat moved from %v to %v without a beat", before, got)
		}
		b.faults.away.Store(false)
		eventually(t, "it beats again", func() bool { return k.LastBeat().After(before) })
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestKeeperOfAnInstanceWithoutProgress(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id, value := register(t, b.leases, "a")
		var asked atomic.Int32
		k := b.leases.Keep(id, value, func() bool { asked.Add(1); return false }, nil)
		made := k.LastBeat()
		done, stop := keep(t, k)
		eventually(t, "the lease ends", func() bool {
			running, err := b.leases.Running(t.Context(), id)
			return err == nil && !running[id]
		})
		if s, _ := b.score(t, id); s != value || !k.LastBeat().Equal(made) {
			t.Errorf("it beat: %d after %d", s, value)
		}
		if asked.Load() < 2 {
			t.Error("it was not asked before each beat")
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestDescribe(t *testing.T) {
	each(t, func(t *testing.T, b bundle) {
		id, other := protocol.NewInstanceID("a"), protocol.NewInstanceID("b")
		want := heartbeat.Info{
			Name: "a", Address: "127.0.0.1:8081", Version: "v1", State: "ready",
			Started: time.UnixMilli(1_700_000_000_000), Sessions: 17, Lag: 1500 * time.Millisecond,
		}
		if err := b.leases.Describe(t.Context(), id, want); err != nil {
			t.Fatal(err)
		}
		got, err := b.leases.Infos(t.Context(), id, other)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[protocol.InstanceID]heartbeat.Info{id: want}, got); diff != "" {
			t.Error(diff)
		}
		ttl, err := b.rdb.PTTL(t.Context(), "socket:instance:"+string(id)).Result()
		if err != nil || ttl <= 0 || ttl > heartbeat.InfoExpiry {
			t.Errorf("expiry %v, %v", ttl, err)
		}
	})
}
