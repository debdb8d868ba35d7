package socket

import (
	"context"
	"sync"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// conns is every connection of the server, also one that has not said hello.
type conns struct {
	mu   sync.Mutex
	all  map[*conn]struct{}
	idle chan struct{} // closed when there is none again; nil while nobody waits
}

func (s *conns) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// enter takes c in, unless there are most.
func (s *conns) enter(c *conn, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= most {
		return false
	}
	if s.all == nil {
		s.all = map[*conn]struct{}{}
	}
	s.all[c] = struct{}{}
	return true
}

func (s *conns) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
	if len(s.all) == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// shut closes all with code.
func (s *conns) shut(code protocol.CloseCode) {
	s.mu.Lock()
	all := make([]*conn, 0, len(s.all))
	for c := range s.all {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		c.shut(code)
	}
}

// wait returns true when there is none, false if ctx ended before.
func (s *conns) wait(ctx context.Context) bool {
	s.mu.Lock()
	if len(s.all) == 0 {
		s.mu.Unlock()
		return true
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
		return true
	case <-ctx.Done():
		return false
	}
}
