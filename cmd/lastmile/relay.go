package main

import (
	"context"
	"log/slog"
	"net"

	"github.com/lastmile-gateway/lastmile/internal/telemetry"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/relay"
)

type relayCommand struct {
	redisFlags    `embed:""`
	mongoFlags    `embed:""`
	internalFlags `embed:""`

	Name       string `help:"Name of this process; a second start under one name supersedes the first. Default: host name and port of its listener."`
	Partitions int    `default:"1" help:"Partitions of the outbox; the same for all relays. 1 keeps each user's events in commit order."`
	Notify     bool   `name:"notify-enabled" default:"true" negatable:"" help:"Put events of offline users into the notification stream."`
}

func (c relayCommand) Run(ctx context.Context, logger *slog.Logger) error {
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
	store, err := c.mongoFlags.open(ctx, outbox.Config{Logger: logger, Metrics: registry})
	if err != nil {
		return err
	}
	name := instanceName(c.Name, inside.Addr())
	r, err := relay.New(relay.Config{
		Name:          name,
		Partitions:    c.Partitions,
		NotifyEnabled: c.Notify,
		Logger:        logger,
		Metrics:       registry,
	}, server, store)
	if err != nil {
		return err
	}
	running := newLayers(ctx)
	running.closing(store.Close)
	running.start(internalPart(inside, telemetry.Config{
		Registry: registry,
		Ready:    r.Ready,
		Status:   func() any { return r.Status() },
	}))
	running.start(r.Run)
	logger.Info("relay runs", "name", name, "internal", inside.Addr().String())
	return running.wait()
}

// internalPart serves the internal listener.
func internalPart(listener net.Listener, cfg telemetry.Config) part {
	return func(ctx context.Context) error {
		return serveHTTP(ctx, listener, telemetry.Handler(cfg))
	}
}
