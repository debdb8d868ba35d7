package socket_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/socket"
)

// stuck is an outbox that answers nobody.
type stuck struct{ *memory }

func (stuck) Fetch(ctx context.Context, _ ...protocol.EventID) (map[protocol.EventID]*protocol.Envelope, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (stuck) Publish(ctx context.Context, _ ...*protocol.Event) error {
	<-ctx.Done()
	return ctx.Err()
}

// Whoever waits for MongoDB holds up nobody who doesn't need it.
func TestAnOutboxThatHangsHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, testkit.EmbeddedRedis(t))
	few := func(c *socket.Config) { c.Workers = 2 }
	a := r.startWith(r.redis.Server(), stuck{r.store}, "a", few).ready()
	for i := range 4 { // they publish, or missed something
		user := fmt.Sprintf("u%d", i)
		c := connect(t, a, user, hello{"token": token(user, mayPublish("x"))})
		if i < 2 {
			c.send(map[string]any{"type": "publish", "ref": "1", "event": map[string]any{"to": []string{"v"}, "type": "x", "data": map[string]any{}}})
			continue
		}
		c.drop()
		r.append(r.event("missed", protocol.UserID(user)), protocol.UserID(user))
		p := c.position
		dial(t, a.url(), hello{"token": token(user), "acks": true, "resume": map[string]any{"epoch": p.Epoch, "seq": p.Seq, "id": p.ID}})
	}
	c := connect(t, a, "other")
	r.publish("e1", "other")
	c.sees("e1")
	r.settled(a.Instance())
	if !c.open() {
		t.Error("closed")
	}
}
