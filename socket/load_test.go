package socket_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// Full entries to many users at once: each gets his in order, once, and nothing is left.
func TestManyUsersInOrder(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		a := r.start("a").ready()
		const users, entries = 50, 40
		var all []*client
		for i := range users {
			all = append(all, connect(t, a, fmt.Sprintf("u%d", i)))
		}
		want := make([][]string, users)
		for e := range entries {
			var items []protocol.Item
			for i := range protocol.MaxBatchEvents {
				n := e*protocol.MaxBatchEvents + i
				to := []protocol.UserID{protocol.UserID(fmt.Sprintf("u%d", n%users)), protocol.UserID(fmt.Sprintf("u%d", (n*7+1)%users))}
				name := fmt.Sprintf("e%d", n)
				want[n%users] = append(want[n%users], name)
				if to[0] == to[1] {
					to = to[:1]
				} else {
					want[(n*7+1)%users] = append(want[(n*7+1)%users], name)
				}
				env := r.event(name, to...)
				var pairs []protocol.Pair
				for k, routed := range r.append(env, to...) {
					pairs = append(pairs, protocol.Pair{User: to[k], Epoch: routed.Epoch, Seq: routed.Seq})
				}
				items = append(items, protocol.Item{Event: env, Pairs: pairs})
			}
			for _, b := range protocol.Split(items) {
				r.enter(a.Instance(), inbox.Entry{Batch: b})
			}
		}
		for i, c := range all {
			c.sees(want[i]...)
		}
		r.settled(a.Instance())
		for i, c := range all {
			if got := c.shown(); !slices.Equal(got, want[i]) || c.doubles != 0 || !c.open() {
				t.Errorf("u%d: %d shown of %d, %d doubles, open: %v", i, len(got), len(want[i]), c.doubles, c.open())
			}
		}
	})
}
