package socket

import (
	"context"
	"errors"
	"log/slog"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// publishBatch bounds the publish frames of one client that are committed together.
const publishBatch = 64

// publishQueue is the publish frames of one client, in order. Guarded by the conn's mu.
type publishQueue struct {
	waiting []*protocol.Publish
	busy    bool
}

// queuePublish takes a publish frame, if its token allows it.
func (c *conn) queuePublish(p *protocol.Publish) {
	if code, message := c.judgePublish(p); code != "" {
		c.refuse(p, code, message)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.publish.waiting = append(c.publish.waiting, p)
	if !c.publish.busy {
		c.publish.busy = true
		c.s.slow.submit(c.publishAll)
	}
}

func (c *conn) judgePublish(p *protocol.Publish) (protocol.ErrorCode, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.identity.mayPublish(p.Event.Type):
		return protocol.ErrorNotAllowed, "the token does not allow events of this type"
	case len(c.publish.waiting) >= c.s.cfg.PublishQueue:
		return protocol.ErrorRateLimited, "too many events wait for their commit"
	}
	p.Event.Source = "user:" + string(c.identity.user)
	return "", ""
}

func (c *conn) refuse(p *protocol.Publish, code protocol.ErrorCode, message string) {
	c.send(protocol.ErrorFrame{Ref: p.Ref, Code: code, Message: message}.AppendTo(nil))
}

// publishAll commits what is queued, as much at once as there is: a client's order is kept, since the
// next batch begins when this one is answered.
func (c *conn) publishAll() {
	for {
		c.mu.Lock()
		n := min(publishBatch, len(c.publish.waiting))
		batch := c.publish.waiting[:n:n]
		c.publish.waiting = c.publish.waiting[n:]
		c.publish.busy = n > 0
		c.mu.Unlock()
		if n == 0 {
			return
		}
		c.publishBatch(batch)
	}
}

func (c *conn) publishBatch(batch []*protocol.Publish) {
	list := make([]*protocol.Event, len(batch))
	for i, p := range batch {
		list[i] = p.Event
	}
	ctx, cancel := context.WithTimeout(c.s.scripts, publishTimeout)
	defer cancel()
	err := c.s.store.Publish(ctx, list...)
	if err == nil {
		c.s.metrics.published.Add(float64(len(batch)))
		for _, p := range batch {
			c.send(protocol.Published{Ref: p.Ref, ID: p.Event.ID}.AppendTo(nil))
		}
		return
	}
	var invalid *protocol.ValidationError
	if errors.As(err, &invalid) && len(batch) > 1 {
		for _, p := range batch { // one is at fault: the others shall not suffer
			c.publishBatch([]*protocol.Publish{p})
		}
		return
	}
	for _, p := range batch {
		if invalid != nil {
			c.refuse(p, protocol.ErrorBadEvent, "/event"+invalid.Faults[0].Pointer+" "+invalid.Faults[0].Message)
			continue
		}
		c.s.log.Warn("publish for a client meets trouble", slog.Any("error", err))
		c.refuse(p, protocol.ErrorUnavailable, "the outbox is away, try again")
	}
}
