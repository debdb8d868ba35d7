package main

import (
	"fmt"
	"testing"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// network is how some browsers, and publishers, reach the socket servers: a proxy to each. Number 0 is
// never broken.
type network struct {
	// fixed after construction
	name    string
	proxies []*testkit.Proxy // by socket server

	busy bool // owned by the timeline

	troubles spans
}

func newNetwork(t testing.TB, i int, sockets []*node) *network {
	n := &network{name: fmt.Sprintf("network-%d", i)}
	for _, s := range sockets {
		n.proxies = append(n.proxies, testkit.NewProxy(t, s.public))
	}
	return n
}

// each does the same to all its proxies.
func (n *network) each(do func(*testkit.Proxy)) {
	for _, p := range n.proxies {
		do(p)
	}
}
