package socket

import "github.com/lastmile-gateway/lastmile/internal/redisconn"

// Events is what a server needs of the outbox.
type Events = events

// NewWith is New with a store that a test has wrapped.
func NewWith(cfg Config, where *redisconn.Server, store Events) (*Server, error) {
	return newServer(cfg, where, store)
}
