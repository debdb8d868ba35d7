package relay

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/heartbeat"
)

// aliveFor is how long a socket server counts as seen alive after the last look
// that showed it: longer than it takes to notice that Redis is empty.
const aliveFor = 30 * time.Second

// instances is what this relay knows of the socket servers. Redis forgets them when
// it becomes empty; this doesn't.
type instances struct {
	leases *heartbeat.Leases       // set before the first look
	tell   func([]heartbeat.Lease) // what each look showed

	mu   sync.Mutex
	last map[string]time.Time // name → the last look that showed it running
}

func newInstances() *instances {
	return &instances{last: make(map[string]time.Time)}
}

func (s *instances) over(rdb redis.UniversalClient, cfg Config) {
	s.leases = heartbeat.New(rdb, heartbeat.SocketInstances, cfg.pace())
}

// look lists the socket servers and remembers those that run.
func (s *instances) look(ctx context.Context) (map[string]bool, error) {
	list, err := s.leases.List(ctx)
	if err != nil {
		return nil, err
	}
	s.tell(list)
	running := names(list)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for name := range running {
		s.last[name] = now
	}
	for name, at := range s.last {
		if now.Sub(at) > 2*aliveFor {
			delete(s.last, name)
		}
	}
	return running, nil
}

// running answers the names of those that hold a lease which runs.
func (s *instances) running(ctx context.Context) (map[string]bool, error) {
	list, err := s.leases.List(ctx)
	if err != nil {
		return nil, err
	}
	return names(list), nil
}

func names(list []heartbeat.Lease) map[string]bool {
	running := make(map[string]bool)
	for _, l := range list {
		if l.Running {
			running[l.ID.Name()] = true
		}
	}
	return running
}

// recent answers the names of those that were seen alive lately.
func (s *instances) recent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, at := range s.last {
		if time.Since(at) < aliveFor {
			names = append(names, name)
		}
	}
	return names
}
