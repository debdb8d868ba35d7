package redisconn

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

const minMajor, minMinor = 6, 2

// Check says whether lastmile can work with the server: that it answers, lets us
// in, is a master, no cluster, and Redis 6.2 or newer. Its errors say what to do and never
// hold the password.
func (s *Server) Check(ctx context.Context) error {
	rdb := s.Conn(nil)
	defer func() { _ = rdb.Close() }()
	// HELLO and not INFO: every server has it, also those that have no INFO.
	reply, err := rdb.Do(ctx, "HELLO", 2).Slice()
	if err == nil {
		err = rdb.Ping(ctx).Err() // HELLO is answered while loading; PING is not
	}
	if err != nil {
		return fmt.Errorf("check redis %s: %w", s, s.explain(err))
	}
	if err := s.judge(facts(reply)); err != nil {
		return fmt.Errorf("check redis %s: %w", s, err)
	}
	return nil
}

// explain adds what to do to what went wrong.
func (s *Server) explain(err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return fmt.Errorf("it can't be reached (is it running, is the address right?): %w", err)
	}
	switch msg := reply.Error(); {
	case strings.HasPrefix(msg, "WRONGPASS"):
		return errors.New("the user name or password is wrong: correct it in the URL")
	case strings.HasPrefix(msg, "NOAUTH"):
		return errors.New("it wants a password: put it into the URL (redis://user:password@host, redis://:password@host)")
	case strings.HasPrefix(msg, "ERR unknown command"):
		return fmt.Errorf("it is older than Redis %d.%d: use a newer one", minMajor, minMinor)
	case strings.HasPrefix(msg, "ERR DB index"):
		return fmt.Errorf("it has no database %d: correct the URL's path", s.db)
	case strings.HasPrefix(msg, "LOADING"):
		return fmt.Errorf("it is still loading its data: try again: %w", err)
	}
	return err
}

// facts turns HELLO's reply, names and values in turn, into a map of its strings.
func facts(reply []any) map[string]string {
	m := make(map[string]string, len(reply)/2)
	for i := 0; i+1 < len(reply); i += 2 {
		name, _ := reply[i].(string)
		value, _ := reply[i+1].(string)
		m[name] = value
	}
	return m
}

func (s *Server) judge(f map[string]string) error {
	if old, err := tooOld(f["version"]); err != nil {
		return err
	} else if old {
		return fmt.Errorf("it is version %s: lastmile needs Redis %d.%d or newer", f["version"], minMajor, minMinor)
	}
	if f["mode"] == "cluster" {
		return errors.New("it is a node of a Redis Cluster: this version of lastmile needs a standalone server")
	}
	if f["role"] == "replica" || f["role"] == "slave" {
		return errors.New("it is a replica: give the address of its master")
	}
	return nil
}

func tooOld(version string) (bool, error) {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if err := errors.Join(err1, err2); err != nil {
		return false, fmt.Errorf("it gives %q as its version: is it a Redis?", version)
	}
	return a < minMajor || a == minMajor && b < minMinor, nil
}
