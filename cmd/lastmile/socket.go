package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/telemetry"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/socket"
)

type socketCommand struct {
	redisFlags    `embed:""`
	mongoFlags    `embed:""`
	internalFlags `embed:""`
	tokenFlags    `embed:""`
	apiKeyFlags   `embed:""`

	Listen string        `default:":8080" help:"Public address: WebSocket and publish API."`
	Name   string        `help:"Name of this process; a second start under one name supersedes the first. Default: host name and port of its listener."`
	Origin []string      `help:"Origin of a page, other than this server's own, that may connect, e.g. https://chat.example (repeatable)."`
	Notify bool          `name:"notify-enabled" default:"true" negatable:"" help:"Put what no session can take into the notification stream."`
	Drain  time.Duration `default:"20s" help:"How long the sessions are given to move elsewhere when the process is asked to stop."`
}

func (c socketCommand) Run(ctx context.Context, logger *slog.Logger) error {
	secret, err := c.secret()
	if err != nil {
		return err
	}
	at, err := listenBoth(ctx, c.Listen, c.InternalListen)
	if err != nil {
		return err
	}
	defer at.close()
	registry := telemetry.NewRegistry()
	redis, err := c.redisFlags.open(ctx)
	if err != nil {
		return err
	}
	store, err := c.mongoFlags.open(ctx, outbox.Config{Logger: logger, Metrics: registry})
	if err != nil {
		return err
	}
	server, err := socket.New(socket.Config{
		Name:          instanceName(c.Name, at.public.Addr()),
		Address:       at.public.Addr().String(),
		TokenSecret:   secret,
		APIKeys:       c.APIKey,
		Origins:       c.Origin,
		NotifyEnabled: c.Notify,
		DrainWindow:   c.Drain,
		Version:       versionString(),
		Logger:        logger,
		Metrics:       registry,
	}, redis, store)
	if err != nil {
		return err
	}
	running := newLayers(ctx)
	running.closing(store.Close)
	running.start(
		func(ctx context.Context) error { return serveHTTP(ctx, at.public, server.Handler()) },
		internalPart(at.inside, telemetry.Config{
			Registry: registry,
			Ready:    server.Ready,
			Status:   func() any { return server.Status() },
		}),
	)
	running.start(server.Run)
	logger.Info("socket server runs", "listen", at.public.Addr().String(), "internal", at.inside.Addr().String())
	return running.wait()
}
