package socket

import "github.com/lastmile-gateway/lastmile/internal/redisconn"

// Events is what a server needs of the outbox.
type Events = events

// Tracked is how many entries the server's tracker keeps in memory, those that are gone among them.
func Tracked(s *Server) int {
	t := s.current.Load().tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.order)
}

// NewWith is New with a store that a test has wrapped.
func NewWith(cfg Config, where *redisconn.Server, store Events) (*Server, error) {
	return newServer(cfg, where, store)
}
