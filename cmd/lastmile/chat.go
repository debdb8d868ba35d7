package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/telemetry"
	"github.com/lastmile-gateway/lastmile/web/chat"
)

type chatCommand struct {
	mongoFlags    `embed:""`
	internalFlags `embed:""`
	tokenFlags    `embed:""`

	Listen string   `default:":8080" help:"Public address of the page and its backend."`
	Socket []string `required:"" help:"Address of a socket server as the browser sees it, e.g. https://live.example (repeatable)."`
}

func (c chatCommand) Run(ctx context.Context, logger *slog.Logger) error {
	secret, err := c.secret()
	if err != nil {
		return err
	}
	at, err := listenBoth(ctx, c.Listen, c.InternalListen)
	if err != nil {
		return err
	}
	defer at.close()
	backend, err := openChat(ctx, chat.Config{
		MongoURL:    c.MongoURL,
		TokenSecret: secret,
		Sockets:     c.Socket,
		Logger:      logger,
	})
	if err != nil {
		return err
	}
	running := newLayers(ctx)
	running.closing(backend.Close)
	running.start(
		func(ctx context.Context) error { return serveHTTP(ctx, at.public, backend.Handler()) },
		internalPart(at.inside, telemetry.Config{
			Registry: telemetry.NewRegistry(),
			Ready: func() error {
				limited, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				return backend.Ping(limited)
			},
		}),
	)
	logger.Info("chat runs", "listen", at.public.Addr().String(), "internal", at.inside.Addr().String())
	return running.wait()
}

// openChat connects the chat's backend to its database.
func openChat(ctx context.Context, cfg chat.Config) (*chat.Server, error) {
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	backend, err := chat.New(limited, cfg)
	if err != nil {
		return nil, fmt.Errorf("start chat: %w", err)
	}
	return backend, nil
}
