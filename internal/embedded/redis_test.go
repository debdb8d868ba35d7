package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
)

type redisSetup struct {
	*redis.Client
	ctx  context.Context
	stop func() error // ends the server
}

func setupRedis(t *testing.T) *redisSetup {
	t.Helper()
	server, err := embedded.NewRedis(embedded.RedisConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	stop := func() error {
		cancel()
		select {
		case err := <-done:
			done <- err
			return err
		case <-time.After(closeLimit):
			return fmt.Errorf("the server has not ended after %s", closeLimit)
		}
	}
	o, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	o.MaxRetries = -1
	s := &redisSetup{redis.NewClient(o), context.WithoutCancel(t.Context()), stop}
	t.Cleanup(func() {
		_ = s.Close()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *redisSetup) do(t *testing.T, args ...any) any {
	t.Helper()
	v, err := s.Do(s.ctx, args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Errorf("%v: %v", args, err)
	}
	return v
}

func TestRedis_TTLsAge(t *testing.T) {
	t.Parallel()
	s := setupRedis(t)
	s.do(t, "SET", "k", "v", "PX", 80)
	if s.do(t, "GET", "k") != "v" {
		t.Fatal("gone at once")
	}
	deadline := time.Now().Add(5 * time.Second)
	for s.do(t, "GET", "k") != nil {
		if time.Now().After(deadline) {
			t.Fatal("still there after 5s")
		}
	}
	s.do(t, "RPUSH", "l", "a")
	s.do(t, "PEXPIRE", "l", 60_000)
	if ttl := s.do(t, "PTTL", "l").(int64); ttl <= 0 || ttl > 60_000 {
		t.Fatalf("ttl %d", ttl)
	}
}

func TestRedis_ClosesUnderABlockedReader(t *testing.T) {
	t.Parallel()
	s := setupRedis(t)
	s.do(t, "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
	ended := make(chan error, 1)
	go func() {
		ended <- s.Do(s.ctx, "XREADGROUP", "GROUP", "g", "c", "BLOCK", 60_000, "STREAMS", "s", ">").Err()
	}()
	deadline := time.Now().Add(5 * time.Second)
	for s.PoolStats().TotalConns < 2 { // the reader's and ours
		s.do(t, "PING")
		if time.Now().After(deadline) {
			t.Fatal("the reader is not under way after 5s")
		}
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Fatal("the read succeeded")
		}
	case <-time.After(closeLimit):
		t.Fatal("the read goes on after the server ended")
	}
}

func TestRedis_Scripts(t *testing.T) {
	t.Parallel()
	s := setupRedis(t)
	script := `local t = redis.call('TIME'); redis.call('ZADD', KEYS[1], t[1] * 1000 + math.floor(t[2] / 1000), ARGV[1]); return {t[1], redis.call('ZSCORE', KEYS[1], ARGV[1])}`
	sha := s.do(t, "SCRIPT", "LOAD", script).(string)
	out := s.do(t, "EVALSHA", sha, 1, "z", "m").([]any)
	if len(out) != 2 || out[1] == nil {
		t.Fatalf("got %v", out)
	}
	if exists := s.do(t, "SCRIPT", "EXISTS", sha).([]any); exists[0] != int64(1) {
		t.Fatalf("got %v", exists)
	}
	err := s.Do(s.ctx, "EVALSHA", "0000000000000000000000000000000000000000", 0).Err()
	if !redis.HasErrorPrefix(err, "NOSCRIPT") {
		t.Fatalf("want NOSCRIPT, got %v", err)
	}
	hello := s.do(t, "HELLO", 3)
	if fmt.Sprint(hello) == "" {
		t.Fatal("no hello")
	}
}

// An error inside a script has the code that a server gives it.
func TestRedis_ScriptErrorsKeepTheirCode(t *testing.T) {
	t.Parallel()
	s := setupRedis(t)
	s.do(t, "SET", "text", "x")
	for script, code := range map[string]string{
		"return redis.call('RPUSH', KEYS[1], 'a')":                        "WRONGTYPE Operation",
		"local x = 1\n return redis.call('XADD', KEYS[1], '*', 'a', 'b')": "WRONGTYPE Operation",
		"return redis.call('XPENDING', 'none', 'g', '-', '+', 10)":        "NOGROUP No such key",
		"return redis.error_reply('MINE because')":                        "MINE because",
		"error('boom')": "ERR ",
		"return redis.call('XGROUP', 'CREATE', KEYS[1], 'g', '0', 'MKSTREAM', 'more')": "ERR ",
	} {
		err := s.Eval(s.ctx, script, []string{"text"}).Err()
		if err == nil || !strings.HasPrefix(err.Error(), code) {
			t.Errorf("%s: want %q, got %v", script, code, err)
		}
	}
	if v, err := s.Eval(s.ctx, "return {KEYS[1], 7, redis.call('GET', KEYS[1])}", []string{"text"}).Slice(); err != nil || len(v) != 3 || v[2] != "x" {
		t.Errorf("got %v, %v", v, err)
	}
	pipe := s.TxPipeline()
	set, eval := pipe.Set(s.ctx, "n", 1, 0), pipe.Eval(s.ctx, "return redis.call('INCR', KEYS[1])", []string{"n"})
	if _, err := pipe.Exec(s.ctx); err != nil || set.Err() != nil || eval.Val() != int64(2) {
		t.Errorf("in MULTI: %v, %v", eval.Val(), err)
	}
}

// What the other packages send has to be there: a gap in miniredis shows here
// first.
func TestRedis_HasTheCommandsWeUse(t *testing.T) {
	t.Parallel()
	s := setupRedis(t)
	s.do(t, "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
	if v := s.do(t, "XADD", "none", "NOMKSTREAM", "*", "a", 1); v != nil {
		t.Errorf("XADD NOMKSTREAM: %v", v)
	}
	s.do(t, "XADD", "s", "MAXLEN", "~", 1000, "1-1", "a", 1)
	s.do(t, "XADD", "s", "NOMKSTREAM", "*", "a", 2)
	s.do(t, "XREADGROUP", "GROUP", "g", "c", "COUNT", 10, "STREAMS", "s", ">")
	for _, c := range [][]any{
		{"XREADGROUP", "GROUP", "g", "c", "COUNT", 10, "BLOCK", 1, "STREAMS", "s", ">"},
		{"XREADGROUP", "GROUP", "g", "c", "COUNT", 10, "STREAMS", "s", "0"},
		{"XAUTOCLAIM", "s", "g", "c", 0, "0-0", "COUNT", 10},
		{"XAUTOCLAIM", "s", "g", "c", 0, "0-0", "COUNT", 10, "JUSTID"},
		{"XCLAIM", "s", "g", "c", 0, "1-1", "JUSTID"},
		{"XPENDING", "s", "g"},
		{"XPENDING", "s", "g", "-", "+", 10},
		{"XPENDING", "s", "g", "IDLE", 0, "-", "+", 10},
		{"XPENDING", "s", "g", "-", "+", 10, "c"},
		{"XINFO", "STREAM", "s"}, {"XINFO", "GROUPS", "s"}, {"XINFO", "CONSUMERS", "s", "g"},
		{"XRANGE", "s", "-", "+", "COUNT", 1}, {"XREVRANGE", "s", "+", "-", "COUNT", 1},
		{"XLEN", "s"}, {"XACK", "s", "g", "1-1"}, {"XDEL", "s", "1-1"}, {"XTRIM", "s", "MAXLEN", 10},
		{"XGROUP", "CREATECONSUMER", "s", "g", "d"}, {"XGROUP", "DELCONSUMER", "s", "g", "d"},
		{"RPUSH", "l", "a", "b"}, {"RPUSHX", "l", "c"}, {"LPOS", "l", "b"}, {"LPOS", "l", "b", "RANK", -1},
		{"LRANGE", "l", 0, -1}, {"LINDEX", "l", -1}, {"LLEN", "l"}, {"LTRIM", "l", -2, -1}, {"LSET", "l", 0, "z"},
		{"HSET", "h", "a", 1, "b", 2}, {"HGETALL", "h"}, {"HMGET", "h", "a", "x"}, {"HDEL", "h", "a"}, {"HINCRBY", "h", "b", 1}, {"HLEN", "h"}, {"HSETNX", "h", "n", 1},
		{"ZADD", "z", 5, "a"}, {"ZADD", "z", "XX", 6, "a"}, {"ZADD", "z", "GT", 7, "a"}, {"ZADD", "z", "XX", "GT", "CH", 8, "a"},
		{"ZRANGEBYSCORE", "z", "-inf", "(9", "WITHSCORES", "LIMIT", 0, 5}, {"ZRANGE", "z", 0, -1, "WITHSCORES"}, {"ZSCORE", "z", "a"}, {"ZMSCORE", "z", "a"}, {"ZCARD", "z"}, {"ZREM", "z", "a"}, {"ZCOUNT", "z", 0, 1},
		{"SET", "k", "v", "NX", "PX", 1000}, {"GETDEL", "k"}, {"SET", "k", "v", "XX", "KEEPTTL"}, {"PEXPIRE", "l", 1000}, {"EXPIRE", "h", 10, "XX"}, {"PTTL", "l"}, {"EXISTS", "k"}, {"DEL", "k"}, {"UNLINK", "l"}, {"TYPE", "h"}, {"SCAN", 0, "MATCH", "h*", "COUNT", 10, "TYPE", "hash"},
		{"TIME"}, {"PING"}, {"DBSIZE"}, {"PERSIST", "h"}, {"PUBLISH", "c", "m"}, {"WAIT", 0, 0}, {"OBJECT", "IDLETIME", "h"}, {"MEMORY", "USAGE", "h"},
		{"CLIENT", "SETNAME", "x"}, {"INFO"}, {"FLUSHALL"},
	} {
		s.do(t, c...)
	}
}
