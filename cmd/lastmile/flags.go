package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/relay"
	"github.com/lastmile-gateway/lastmile/socket"
)

// startTimeout bounds what a command asks of Redis and MongoDB before it runs.
const startTimeout = 15 * time.Second

type logFlags struct {
	Level  string `default:"info" enum:"debug,info,warn,error" help:"Least level that is logged (${enum})."`
	Format string `default:"text" enum:"text,json" help:"Form of a log line (${enum})."`
}

func (f logFlags) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.Level)); err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	if f.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return slog.New(slog.NewTextHandler(w, options)), nil
}

type redisFlags struct {
	RedisURL string `name:"redis-url" default:"redis://127.0.0.1:6379" help:"Redis 6.2 or newer: redis://[user:password@]host:port[/db] or rediss://."`
}

// open finds out that Redis is there and new enough.
func (f redisFlags) open(ctx context.Context) (*redisconn.Server, error) {
	server, err := redisconn.Parse(f.RedisURL)
	if err != nil {
		return nil, fmt.Errorf("--redis-url: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := server.Check(limited); err != nil {
		return nil, err
	}
	return server, nil
}

type mongoFlags struct {
	MongoURL string `name:"mongo-url" default:"mongodb://127.0.0.1:27017/lastmile" help:"MongoDB 4.4 or newer, a replica set; the path names the database."`
}

// open connects, finds out that the server is one that can be used, and makes collections and indexes.
func (f mongoFlags) open(ctx context.Context, cfg outbox.Config) (*outbox.Store, error) {
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	store, err := outbox.Open(limited, f.MongoURL, cfg)
	if err != nil {
		return nil, err
	}
	if err := store.Prepare(limited); err != nil {
		return nil, errors.Join(err, store.Close(context.WithoutCancel(ctx)))
	}
	return store, nil
}

type internalFlags struct {
	InternalListen string `default:"127.0.0.1:9080" help:"Address of /livez, /readyz, /metrics, /statusz and /debug/pprof."`
}

type apiKeyFlags struct {
	APIKey []string `name:"api-key" help:"Key that may publish by POST /v1/events (repeatable); make it long and random. Without one, nobody may."`
}

type tokenFlags struct {
	TokenSecret string `required:"" help:"Secret of the tokens (HS256): at least 16 bytes, better 32 random ones."`
}

func (f tokenFlags) secret() ([]byte, error) {
	if len(f.TokenSecret) < socket.MinTokenSecret {
		return nil, fmt.Errorf("--token-secret: has %d bytes, needs at least %d: make one with `openssl rand -hex 32`", len(f.TokenSecret), socket.MinTokenSecret)
	}
	if f.TokenSecret == devTokenSecret {
		return nil, errors.New("--token-secret: this is the published secret of `lastmile dev`: make one with `openssl rand -hex 32`")
	}
	return []byte(f.TokenSecret), nil
}

// longestName is that of a default name: within protocol.MaxInstanceName, with room for the prefix by which
// notifiers stand beside relays.
const longestName = protocol.MaxInstanceName - len(relay.NotifierPrefix)

// instanceName is the name a process goes by where none was given: host name and port of its listener.
func instanceName(given string, listener net.Addr) string {
	if given != "" {
		return given
	}
	name, err := os.Hostname()
	if err != nil || name == "" {
		name = "localhost"
	}
	if _, port, err := net.SplitHostPort(listener.String()); err == nil {
		name += "-" + port
	}
	return fitName(name)
}

// fitName makes a name of anything. Of one that is too long the end is kept: there hosts differ.
func fitName(s string) string {
	name := strings.Map(nameRune, s)
	return name[max(0, len(name)-longestName):]
}

// nameRune replaces what may not stand in an instance's name.
func nameRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
		return r
	}
	return '-'
}

// listeners are those of a process that serves the public and its operator.
type listeners struct {
	public, inside net.Listener
}

func listenBoth(ctx context.Context, public, inside string) (listeners, error) {
	var l listeners
	var err error
	if l.public, err = listen(ctx, "--listen", public); err != nil {
		return l, err
	}
	if l.inside, err = listen(ctx, "--internal-listen", inside); err != nil {
		return l, errors.Join(err, l.public.Close())
	}
	return l, nil
}

// close gives back what a failed start leaves; what served is closed already.
func (l listeners) close() {
	_ = l.public.Close()
	_ = l.inside.Close()
}

func listen(ctx context.Context, flag, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: choose a free address with %s", flag, address, err, flag)
	}
	return listener, nil
}
