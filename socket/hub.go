package socket

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/lastmile-gateway/lastmile/protocol"
)

const hubShards = 256

// hub knows the sessions of each user on this server, from before they register until after their
// connection is gone. It is sharded by user, so that deliveries to different users do not meet.
type hub struct {
	seed   maphash.Seed
	shards [hubShards]hubShard
}

type hubShard struct {
	mu    sync.RWMutex
	users map[protocol.UserID][]*conn
}

func newHub() *hub {
	h := &hub{seed: maphash.MakeSeed()}
	for i := range h.shards {
		h.shards[i].users = map[protocol.UserID][]*conn{}
	}
	return h
}

func (h *hub) shard(user protocol.UserID) *hubShard {
	return &h.shards[maphash.String(h.seed, string(user))%hubShards]
}

func (h *hub) add(user protocol.UserID, c *conn) {
	s := h.shard(user)
	s.mu.Lock()
	defer s.mu.Unlock()
	// A new slice each time: of() gives the old one to readers without a copy.
	s.users[user] = append(slices.Clip(s.users[user]), c)
}

func (h *hub) remove(user protocol.UserID, c *conn) {
	s := h.shard(user)
	s.mu.Lock()
	defer s.mu.Unlock()
	var rest []*conn
	for _, other := range s.users[user] {
		if other != c {
			rest = append(rest, other)
		}
	}
	if len(rest) == 0 {
		delete(s.users, user)
		return
	}
	s.users[user] = rest
}

// of returns the sessions of a user; not to be changed.
func (h *hub) of(user protocol.UserID) []*conn {
	s := h.shard(user)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.users[user]
}

// all returns every session there is now.
func (h *hub) all() []*conn {
	var all []*conn
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.RLock()
		for _, conns := range s.users {
			all = append(all, conns...)
		}
		s.mu.RUnlock()
	}
	return all
}

func (h *hub) sessions() (users, sessions int) {
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.RLock()
		users += len(s.users)
		for _, conns := range s.users {
			sessions += len(conns)
		}
		s.mu.RUnlock()
	}
	return users, sessions
}
