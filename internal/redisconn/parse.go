package redisconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

const supported = "supported: redis://[user:password@]host[:port][/db] and rediss:// (TLS)"

// Server is where Redis is, and how to talk to it. Make one with [Parse]. It
// holds no connection and may be used by many goroutines.
type Server struct {
	scheme   string
	addr     string
	username string
	password string
	db       int
	tls      *tls.Config // nil: plain
}

// Parse reads a Redis URL: redis://[user:password@]host[:port][/db], or rediss://
// for TLS (with ?skip_verify=true, whatever its certificate). The host defaults to localhost,
// the port to 6379. Its errors never hold the password.
func Parse(rawURL string) (*Server, error) {
	if strings.TrimSpace(rawURL) == "" {
		return nil, fmt.Errorf("parse redis url: it is empty; %s", supported)
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		// The cause may quote the very part that holds the password.
		return nil, errors.New("parse redis url: not a valid URL; special characters in a password must be percent-encoded; " + supported)
	}
	if err := checkScheme(u); err != nil {
		return nil, err
	}
	o, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("parse redis url: %w; %s", err, supported)
	}
	if err := checkQuery(u); err != nil {
		return nil, err
	}
	return &Server{scheme: u.Scheme, addr: o.Addr, username: o.Username, password: o.Password, db: o.DB, tls: o.TLSConfig}, nil
}

func checkScheme(u *url.URL) error {
	switch u.Scheme {
	case "redis", "rediss":
		return nil
	case "redis+cluster", "redis+sentinel":
		return fmt.Errorf("parse redis url: %s:// is not supported by this version; %s", u.Scheme, supported)
	case "":
		return fmt.Errorf("parse redis url: it has no scheme; %s", supported)
	default:
		// Of "user:password@host" the scheme would be the user: not quoted.
		return fmt.Errorf("parse redis url: unknown scheme; %s", supported)
	}
}

// checkQuery refuses the options that go-redis would take: sizes, retries and
// timeouts are not the operator's choice, and ignoring them would mislead him.
func checkQuery(u *url.URL) error {
	for name := range u.Query() {
		if name != "skip_verify" && name != "db" {
			return fmt.Errorf("parse redis url: option %q is not supported; leave it away", name)
		}
	}
	return nil
}

// String is the URL without the password.
func (s *Server) String() string {
	u := url.URL{Scheme: s.scheme, Host: s.addr}
	if s.username != "" {
		u.User = url.User(s.username)
	}
	if s.db != 0 {
		u.Path = fmt.Sprintf("/%d", s.db)
	}
	return u.String()
}
