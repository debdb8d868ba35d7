package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/telemetry"
	"github.com/lastmile-gateway/lastmile/relay"
)

type notifyCommand struct {
	redisFlags    `embed:""`
	internalFlags `embed:""`

	Name          string        `help:"Name of this process; a second start under one name supersedes the first. Default: host name and port of its listener."`
	WebhookURL    string        `name:"webhook-url" help:"Where notifications are posted, by the Standard Webhooks specification. Without it they are written to the log."`
	WebhookSecret string        `name:"webhook-secret" help:"Secret that signs them: whsec_ and base64, or at least 24 bytes as they are."`
	Grace         time.Duration `name:"notify-grace" default:"10s" help:"How long a user is given to come back before a notification; longer than a reconnect."`
	ClaimIdle     time.Duration `name:"notify-claim-idle" default:"30s" hidden:"" help:"How long what a notifier holds goes unrenewed before another takes it; the same for all notifiers."`
	MaxPending    int64         `name:"notify-max-pending" default:"100000" help:"Number of waiting notifications from which on there is an alarm."`
}

func (c notifyCommand) Run(ctx context.Context, logger *slog.Logger) error {
	sink, err := c.sink(logger)
	if err != nil {
		return err
	}
	inside, err := listen(ctx, "--internal-listen", c.InternalListen)
	if err != nil {
		return err
	}
	defer inside.Close()
	registry := telemetry.NewRegistry()
	server, err := c.redisFlags.open(ctx)
	if err != nil {
		return err
	}
	name := instanceName(c.Name, inside.Addr())
	n, err := relay.NewNotifier(relay.NotifierConfig{
		Name:       name,
		Grace:      graceOf(c.Grace),
		MaxPending: c.MaxPending,
		ClaimIdle:  c.ClaimIdle,
		Renew:      c.ClaimIdle / 3,
		Logger:     logger,
		Metrics:    registry,
	}, server, sink)
	if err != nil {
		return err
	}
	running := newLayers(ctx)
	running.start(internalPart(inside, telemetry.Config{
		Registry: registry,
		Ready:    n.Ready,
		Status:   func() any { return n.Status() },
	}))
	running.start(n.Run)
	logger.Info("notifier runs", "name", name, "sink", sink.String(), "internal", inside.Addr().String())
	return running.wait()
}

// sink is the webhook, or the log where none is given.
func (c notifyCommand) sink(logger *slog.Logger) (relay.Sink, error) {
	switch {
	case c.WebhookURL == "" && c.WebhookSecret == "":
		return relay.NewLogSink(logger), nil
	case c.WebhookURL == "":
		return nil, errors.New("--webhook-secret: there is nothing to sign: give --webhook-url too")
	case c.WebhookSecret == "":
		return nil, errors.New("--webhook-url: the receiver can't tell our calls from others': give --webhook-secret too, made with `echo whsec_$(openssl rand -base64 32)`")
	}
	sink, err := relay.NewWebhook(relay.WebhookConfig{URL: c.WebhookURL, Secret: c.WebhookSecret})
	if err != nil {
		return nil, fmt.Errorf("--webhook-url, --webhook-secret: %w", err)
	}
	return sink, nil
}

// graceOf lets 0 on the command line mean none, where the configuration takes it for
// the default.
func graceOf(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}
