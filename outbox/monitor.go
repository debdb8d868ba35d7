package outbox

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/event"
)

// serverTime is the operationTime of the last reply to a command that was sent with its context. The driver has
// it only as a session's greatest one, where a server that went back in time can't be seen.
type serverTime struct{ Timestamp }

type serverTimeKey struct{}

// watching makes commands sent with the context it answers report to t. Commands of one stream are sent one after another.
func watching(ctx context.Context, t *serverTime) context.Context {
	return context.WithValue(ctx, serverTimeKey{}, t)
}

func monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Succeeded: func(ctx context.Context, e *event.CommandSucceededEvent) {
		t, ok := ctx.Value(serverTimeKey{}).(*serverTime)
		if !ok || e.CommandName != "aggregate" && e.CommandName != "getMore" {
			return
		}
		if now, ok := operationTime(e.Reply); ok {
			t.Timestamp = now
		}
	}}
}
