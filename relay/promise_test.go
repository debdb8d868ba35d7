package relay_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// The promise under random faults: pipelines fail before or after Redis has done
// them, relays die in the middle of one and are replaced. Every connected user gets
// every event, in commit order, and no seq ever stands for two events.
func TestPromise_RandomFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
				newStorm(t, s, seed).run(60)
			})
		})
	}
}

// storm is one run with faults.
type storm struct {
	*world
	random  *rand.Rand // of the test's own goroutine
	all     []protocol.UserID
	at      []*instance
	want    map[protocol.UserID][]int
	relays  int
	current *fault
}

func newStorm(t *testing.T, s *testkit.Redis, seed uint64) *storm {
	st := &storm{world: newWorld(t, s), random: rand.New(rand.NewPCG(seed, 1)), all: users(10),
		want: make(map[protocol.UserID][]int)}
	for i := range 3 {
		at := st.instance(fmt.Sprintf("s%d", i))
		for k, u := range st.all {
			if k%3 == i {
				at.connect(u)
			}
		}
		st.at = append(st.at, at)
	}
	st.replace(seed)
	return st
}

// replace kills the relay and starts another, whose pipelines fail now and then.
func (s *storm) replace(seed uint64) {
	if s.current != nil {
		s.current.dead.Store(true)
	}
	s.relays++
	f, random := &fault{}, rand.New(rand.NewPCG(seed, uint64(s.relays)))
	f.set(func(cmds []redis.Cmder, send func([]redis.Cmder) error) ([]redis.Cmder, error) {
		f.mu.Lock()
		dice := random.IntN(25)
		f.mu.Unlock()
		switch dice {
		case 0:
			return nil, errDead
		case 1:
			if err := send(cmds); err != nil {
				return nil, err
			}
			return nil, errDead
		}
		return cmds, nil
	})
	s.current = f
	s.relay(quick(fmt.Sprintf("r%d", s.relays)), f.hook)
}

func (s *storm) run(steps int) {
	s.t.Helper()
	for n := range steps {
		e := event(n)
		for _, i := range s.random.Perm(len(s.all))[:1+s.random.IntN(5)] {
			e.To = append(e.To, s.all[i])
			s.want[s.all[i]] = append(s.want[s.all[i]], n)
		}
		s.publish(e)
		if s.random.IntN(20) == 0 {
			s.replace(uint64(n))
		}
	}
	for k, u := range s.all {
		got := s.at[k%3].await(40*time.Second, u, len(s.want[u]))
		for i, d := range got {
			if i >= len(s.want[u]) || d.N != s.want[u][i] {
				s.t.Fatalf("%s got event %d at place %d, want %v", u, d.N, i, s.want[u])
			}
		}
	}
	for _, at := range s.at {
		checkOneIDPerSeq(s.t, at.got)
	}
}
