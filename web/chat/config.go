package chat

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Config is what a [Server] needs.
type Config struct {
	// MongoURL names the MongoDB of the chat's collections and of the outbox; its path is the database,
	// "lastmile" without one. Required, unless Mongo is there.
	MongoURL string
	// Mongo is a database that the caller has open already, instead of MongoURL. [Server.Close] leaves it open.
	Mongo *mongo.Database
	// Outbox is the name of the outbox collection in it; default "outbox".
	Outbox string
	// TokenSecret signs the tokens for the socket servers, which must have the same; required.
	TokenSecret []byte
	// TokenTTL is how long such a token is good; default 15 minutes.
	TokenTTL time.Duration
	// SessionTTL is how long a login is good; default 30 days.
	SessionTTL time.Duration
	// Sockets are the URLs of the socket servers, as browsers reach them; at least one. Without a path: /v1/ws.
	Sockets []string
	// Timeout bounds the work on one request; default 10 s.
	Timeout time.Duration
	// Logger gets what fails on our side; default: nothing is logged.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Outbox == "" {
		c.Outbox = "outbox"
	}
	if c.TokenTTL == 0 {
		c.TokenTTL = 15 * time.Minute
	}
	if c.SessionTTL == 0 {
		c.SessionTTL = 30 * 24 * time.Hour
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate names every fault of the configuration.
func (c Config) Validate() error {
	var faults []error
	if (c.MongoURL == "") == (c.Mongo == nil) {
		faults = append(faults, errors.New("MongoURL: required, or Mongo instead"))
	}
	if len(c.TokenSecret) == 0 {
		faults = append(faults, errors.New("TokenSecret: required, the one of the socket servers"))
	}
	if len(c.Sockets) == 0 {
		faults = append(faults, errors.New("Sockets: at least one URL, such as ws://127.0.0.1:8081"))
	}
	for i, socket := range c.Sockets {
		if _, err := socketURL(socket); err != nil {
			faults = append(faults, fmt.Errorf("Sockets[%d]: %w", i, err))
		}
	}
	if c.TokenTTL < 0 || c.SessionTTL < 0 || c.Timeout < 0 {
		faults = append(faults, errors.New("TokenTTL, SessionTTL, Timeout: not below zero"))
	}
	return errors.Join(faults...)
}

// socketURL gives the URL that browsers dial.
func socketURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "ws", "wss":
	case "http", "https":
		u.Scheme = "ws" + strings.TrimPrefix(u.Scheme, "http")
	default:
		return nil, fmt.Errorf("parse URL: scheme %q, want ws or wss", u.Scheme)
	}
	if u.Host == "" {
		return nil, errors.New("parse URL: no host")
	}
	// The origin goes into a header of the page's; a host can't hold these unescaped anyway.
	if strings.ContainsAny(u.Host, " ;,\"'") {
		return nil, fmt.Errorf("parse URL: host %q", u.Host)
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/ws"
	}
	u.User, u.Fragment = nil, ""
	return u, nil
}
