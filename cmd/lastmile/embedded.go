package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
)

// The addresses of `lastmile dev`'s and `lastmile embedded`'s servers.
const (
	devRedis = "127.0.0.1:16379"
	devMongo = "127.0.0.1:17017"
)

type embeddedFlags struct {
	RedisListen string `default:"${devRedis}" help:"Address of the embedded Redis."`
	MongoListen string `default:"${devMongo}" help:"Address of the embedded MongoDB."`
}

type embeddedCommand struct {
	embeddedFlags `embed:""`
}

func (c embeddedCommand) Run(ctx context.Context, logger *slog.Logger, std streams) error {
	redis, err := c.openRedis(logger)
	if err != nil {
		return err
	}
	mongo, err := c.openMongo(logger)
	if err != nil {
		return err
	}
	running := newLayers(ctx)
	running.start(redis.Run, mongo.Run)
	fmt.Fprintf(std.out, "embedded servers, in memory, to try and test:\n  --redis-url %s\n  --mongo-url %s\n", redis.URL(), mongo.URL())
	return running.wait()
}

func (f embeddedFlags) openRedis(logger *slog.Logger) (*embedded.Redis, error) {
	server, err := embedded.NewRedis(embedded.RedisConfig{Addr: f.RedisListen, Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("--redis-listen: %w: choose a free address", err)
	}
	return server, nil
}

func (f embeddedFlags) openMongo(logger *slog.Logger) (*embedded.Mongo, error) {
	server, err := embedded.NewMongo(embedded.MongoConfig{Addr: f.MongoListen, Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("--mongo-listen: %w: choose a free address", err)
	}
	return server, nil
}
