package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

type publishCommand struct {
	MongoURL  string        `name:"mongo-url" default:"mongodb://${devMongo}/lastmile" help:"MongoDB with the outbox; by default the one of lastmile dev."`
	To        []string      `required:"" help:"User id of a recipient (repeatable)."`
	Type      string        `required:"" help:"Event type, e.g. chat.message."`
	Data      string        `default:"{}" help:"What the browser gets: a JSON object."`
	ID        string        `name:"id" help:"Event id, a UUID; without one a new one. The same id again is the same event."`
	Subject   string        `help:"What the event is about, e.g. room:42."`
	Source    string        `help:"Who emits it."`
	Expires   time.Duration `help:"Past this long it is dropped, never delivered late."`
	Ephemeral bool          `help:"For those who are connected now: no replay, no notification."`
	Notify    bool          `default:"true" negatable:"" help:"Notify recipients who are offline."`
}

// Run inserts the event and prints its id.
func (c publishCommand) Run(ctx context.Context, std streams) error {
	event, err := c.event()
	if err != nil {
		return err
	}
	store, err := mongoFlags{MongoURL: c.MongoURL}.open(ctx, outbox.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = store.Close(context.WithoutCancel(ctx)) }()
	if err := store.Publish(ctx, event); err != nil {
		return err
	}
	_, err = fmt.Fprintln(std.out, event.ID)
	return err
}

func (c publishCommand) event() (*protocol.Event, error) {
	event := &protocol.Event{
		Type:       c.Type,
		Subject:    c.Subject,
		Source:     c.Source,
		Data:       json.RawMessage(c.Data),
		Ephemeral:  c.Ephemeral,
		SkipNotify: !c.Notify,
	}
	for _, to := range c.To {
		event.To = append(event.To, protocol.UserID(to))
	}
	if c.ID != "" {
		id, err := protocol.ParseEventID(c.ID)
		if err != nil {
			return nil, fmt.Errorf("--id: %w", err)
		}
		event.ID = id
	}
	if c.Expires > 0 {
		event.ExpiresAt = time.Now().Add(c.Expires)
	}
	if protocol.ReservedType(event.Type) {
		return nil, fmt.Errorf("--type %s: types beginning with \"lastmile.\" are the system's own: choose another", event.Type)
	}
	event.Prepare()
	return event, event.Validate()
}
