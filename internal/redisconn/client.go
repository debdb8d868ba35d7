package redisconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"golang.org/x/sync/errgroup"
)

const (
	dialTimeout = 2 * time.Second
	// ioTimeout bounds every command that does not block on purpose. It is
	// shorter than an instance's lease (5 s), so that a beat that hangs is seen
	// before the lease ends.
	ioTimeout = 3 * time.Second
	// poolTimeout is how long a command waits for a free connection: longer than
	// any block (2 s) or command that holds one.
	poolTimeout = 5 * time.Second
)

// Pool opens a client of exactly size connections (at least one) for commands of
// many goroutines. Connections are dialled as they are needed; [Open] dials them
// all. onDial (may be nil) is called at every dial that replaces a lost connection;
// see the package's promises. The caller closes the client.
func (s *Server) Pool(size int, onDial func()) redis.UniversalClient {
	return redis.NewClient(s.options(max(size, 1), onDial))
}

// Conn opens a client of exactly one connection: for a blocking reader, a
// heartbeat, a partition, whose commands must not overtake each other or whose
// breaks mean something. onDial (may be nil) is called at every dial after the
// first. The caller closes the client.
func (s *Server) Conn(onDial func()) redis.UniversalClient {
	return s.Pool(1, onDial)
}

func (s *Server) options(size int, onDial func()) *redis.Options {
	return &redis.Options{
		Addr:     s.addr,
		Username: s.username,
		Password: s.password,
		DB:       s.db,
		// The dialer does TLS itself; go-redis' own one ignores the context.
		Dialer:                   (&dialer{tls: s.tls, onDial: onDial}).dial,
		Protocol:                 2,
		MaxRetries:               -1,
		DialTimeout:              dialTimeout,
		DialerRetries:            1,
		ReadTimeout:              ioTimeout,
		WriteTimeout:             ioTimeout,
		PoolTimeout:              poolTimeout,
		ContextTimeoutEnabled:    true,
		PoolSize:                 size,
		PipelinePoolSize:         -1, // no second pool: pipelines share the connections
		ConnMaxIdleTime:          -1,
		ConnMaxLifetime:          -1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Open dials every connection of a client made by [Server.Pool] or
// [Server.Conn], by holding them all at once. A pool that is open from the start
// reports the first break of any of its connections.
func Open(ctx context.Context, rdb redis.UniversalClient) error {
	c, ok := rdb.(*redis.Client)
	if !ok {
		return errors.New("open redis connections: not a client of this package")
	}
	held := make([]*redis.Conn, c.Options().PoolSize)
	defer closeAll(held)
	g, ctx := errgroup.WithContext(ctx)
	for i := range held {
		held[i] = c.Conn()
		g.Go(func() error { return held[i].Ping(ctx).Err() })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("open redis connections: %w", err)
	}
	return nil
}

func closeAll(conns []*redis.Conn) {
	for _, c := range conns {
		_ = c.Close() // gives the connection back to its pool
	}
}
