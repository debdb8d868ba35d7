package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/internal/telemetry"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/relay"
	"github.com/lastmile-gateway/lastmile/socket"
	"github.com/lastmile-gateway/lastmile/web/chat"
)

const (
	devReadyLimit = 20 * time.Second
	devDrain      = 500 * time.Millisecond
	devRetention  = time.Hour // of the embedded MongoDB, which holds everything in memory
)

type devCommand struct {
	embeddedFlags `embed:""`

	Listen         string   `default:"127.0.0.1:8080" help:"Address of the chat page and its backend."`
	SocketListen   []string `default:"127.0.0.1:8081,127.0.0.1:8082" help:"Addresses of the socket servers, one each."`
	InternalListen string   `default:"127.0.0.1:9080" help:"Address of /livez, /readyz, /metrics, /statusz and /debug/pprof."`
	RedisURL       string   `name:"redis-url" help:"A Redis of yours instead of the embedded one."`
	MongoURL       string   `name:"mongo-url" help:"A MongoDB replica set of yours instead of the embedded one."`
	APIKey         string   `name:"api-key" help:"Key for POST /v1/events; without one a random one."`
	TokenSecret    string   `default:"${devTokenSecret}" help:"Secret of the tokens (HS256)."`
	JSON           bool     `name:"json" help:"Print one line of JSON with all addresses when ready, and nothing else."`
}

// devAddresses is what `lastmile dev --json` prints.
type devAddresses struct {
	Chat        string   `json:"chat"`
	Sockets     []string `json:"sockets"`
	Internal    string   `json:"internal"`
	RedisURL    string   `json:"redisUrl"`
	MongoURL    string   `json:"mongoUrl"`
	APIKey      string   `json:"apiKey"`
	TokenSecret string   `json:"tokenSecret"`
}

// dev is everything that runs in the one process.
type dev struct {
	flags   devCommand
	logger  *slog.Logger
	at      devAddresses
	redis   *redisconn.Server
	store   *outbox.Store
	relay   *relay.Relay
	notify  *relay.Notifier
	sockets []*socket.Server
	chat    *chat.Server

	// listeners, open before anything runs so that a taken port ends the command at once
	page    net.Listener
	publics []net.Listener
	inside  net.Listener
}

func (c devCommand) Run(ctx context.Context, logger *slog.Logger, std streams) error {
	if c.APIKey == "" {
		c.APIKey = "dev-" + strings.ToLower(rand.Text())
	}
	d := &dev{flags: c, logger: logger}
	if err := d.listen(ctx); err != nil {
		return err
	}
	running := newLayers(ctx)
	err := d.start(ctx, running)
	if err == nil {
		err = d.print(std)
	}
	if err == nil {
		err = running.wait()
	} else {
		err = errors.Join(err, running.stop())
	}
	return errors.Join(err, d.close())
}

func (d *dev) listen(ctx context.Context) error {
	var err error
	if d.page, err = listen(ctx, "--listen", d.flags.Listen); err != nil {
		return err
	}
	for _, address := range d.flags.SocketListen {
		public, err := listen(ctx, "--socket-listen", address)
		if err != nil {
			return errors.Join(err, d.close())
		}
		d.publics = append(d.publics, public)
		d.at.Sockets = append(d.at.Sockets, "http://"+public.Addr().String())
	}
	if d.inside, err = listen(ctx, "--internal-listen", d.flags.InternalListen); err != nil {
		return errors.Join(err, d.close())
	}
	d.at.Chat = "http://" + d.page.Addr().String()
	d.at.Internal = "http://" + d.inside.Addr().String()
	d.at.APIKey = d.flags.APIKey
	d.at.TokenSecret = d.flags.TokenSecret
	return nil
}

// start brings the parts up, the ones that others depend on first, and returns when all are ready.
func (d *dev) start(ctx context.Context, running *layers) error {
	if err := d.startServers(running); err != nil {
		return err
	}
	registry := telemetry.NewRegistry()
	if err := d.build(ctx, running, registry); err != nil {
		return err
	}
	parts := []part{
		internalPart(d.inside, telemetry.Config{Registry: registry, Ready: d.ready, Status: d.status}),
		func(ctx context.Context) error { return serveHTTP(ctx, d.page, d.chat.Handler()) },
	}
	for i, server := range d.sockets {
		parts = append(parts, func(ctx context.Context) error { return serveHTTP(ctx, d.publics[i], server.Handler()) })
	}
	running.start(parts...)
	running.start(d.relay.Run, d.notify.Run)
	var servers []part
	for _, server := range d.sockets {
		servers = append(servers, server.Run)
	}
	running.start(servers...)
	return await(ctx, devReadyLimit, "lastmile dev", d.ready)
}

// startServers runs the embedded Redis and MongoDB, unless others were given.
func (d *dev) startServers(running *layers) error {
	d.at.RedisURL, d.at.MongoURL = d.flags.RedisURL, d.flags.MongoURL
	if d.at.RedisURL == "" {
		server, err := d.flags.openRedis(d.logger)
		if err != nil {
			return err
		}
		d.at.RedisURL = server.URL()
		running.start(server.Run)
	}
	if d.at.MongoURL == "" {
		server, err := d.flags.openMongo(d.logger)
		if err != nil {
			return err
		}
		d.at.MongoURL = server.URL()
		running.start(server.Run)
	}
	return nil
}

// build opens the clients and makes the parts; only the clients run when it returns.
func (d *dev) build(ctx context.Context, running *layers, registry *prometheus.Registry) error {
	var err error
	if d.redis, err = (redisFlags{RedisURL: d.at.RedisURL}).open(ctx); err != nil {
		return err
	}
	if d.store, err = (mongoFlags{MongoURL: d.at.MongoURL}).open(ctx, outbox.Config{Logger: d.logger, Metrics: registry}); err != nil {
		return err
	}
	running.closing(d.store.Close)
	routing := relay.Config{Name: "dev-relay", NotifyEnabled: true, Logger: d.logger, Metrics: registry}
	if d.flags.MongoURL == "" {
		routing.Retention = devRetention
	}
	d.relay, err = relay.New(routing, d.redis, d.store)
	if err != nil {
		return err
	}
	d.notify, err = relay.NewNotifier(relay.NotifierConfig{
		Name:    "dev",
		Logger:  d.logger,
		Metrics: registry,
	}, d.redis, relay.NewLogSink(d.logger))
	if err != nil {
		return err
	}
	for i, public := range d.publics {
		name := fmt.Sprintf("dev-%d", i+1)
		server, err := socket.New(socket.Config{
			Name:          name,
			Address:       public.Addr().String(),
			TokenSecret:   []byte(d.flags.TokenSecret),
			APIKeys:       []string{d.flags.APIKey},
			Origins:       pageOrigins(d.page.Addr()),
			NotifyEnabled: true,
			DrainWindow:   devDrain,
			Version:       versionString(),
			Logger:        d.logger.With("server", name),
			Metrics:       prometheus.WrapRegistererWith(prometheus.Labels{"server": name}, registry),
		}, d.redis, d.store)
		if err != nil {
			return err
		}
		d.sockets = append(d.sockets, server)
	}
	d.chat, err = openChat(ctx, chat.Config{
		MongoURL:    d.at.MongoURL,
		TokenSecret: []byte(d.flags.TokenSecret),
		Sockets:     d.at.Sockets,
		Logger:      d.logger,
	})
	if err != nil {
		return err
	}
	running.closing(d.chat.Close)
	return nil
}

// pageOrigins are the names by which a browser on this machine may call the chat page.
func pageOrigins(address net.Addr) []string {
	_, port, err := net.SplitHostPort(address.String())
	if err != nil {
		return nil
	}
	return []string{"http://127.0.0.1:" + port, "http://localhost:" + port}
}

func (d *dev) ready() error {
	errs := []error{named("relay", d.relay.Ready()), named("notifier", d.notify.Ready())}
	for i, server := range d.sockets {
		errs = append(errs, named(fmt.Sprintf("socket server %d", i+1), server.Ready()))
	}
	return errors.Join(errs...)
}

func named(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (d *dev) status() any {
	status := map[string]any{"relay": d.relay.Status(), "notifier": d.notify.Status()}
	sockets := make([]any, len(d.sockets))
	for i, server := range d.sockets {
		sockets[i] = server.Status()
	}
	status["sockets"] = sockets
	return status
}

// close gives back the listeners that nothing served.
func (d *dev) close() error {
	var errs []error
	for _, listener := range append([]net.Listener{d.page, d.inside}, d.publics...) {
		if listener == nil {
			continue
		}
		if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (d *dev) print(std streams) error {
	if d.flags.JSON {
		return json.NewEncoder(std.out).Encode(d.at)
	}
	lives := "What is in the servers of yours stays; the rest"
	if d.flags.RedisURL == "" && d.flags.MongoURL == "" {
		lives = "Everything is in memory and"
	}
	_, err := fmt.Fprintf(std.out, `
lastmile is ready. %s ends with this process (Ctrl-C).

  chat             %s   (open it in two windows: ?server=1 and ?server=2 choose the server)
  socket servers   %s
  internal         %s/statusz
  redis            %s
  mongodb          %s
  api key          %s

Send an event to the user alice:

  curl -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' %s/v1/events \
    -d '{"to": ["alice"], "type": "hello", "data": {"text": "hi"}}'

`, lives, d.at.Chat, strings.Join(d.at.Sockets, "   "), d.at.Internal, d.at.RedisURL, d.at.MongoURL, d.at.APIKey, d.at.APIKey, d.at.Sockets[0])
	return err
}
