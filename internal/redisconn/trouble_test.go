package redisconn_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// reply is an error that the server sent.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestIsTrouble(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{redis.Nil, false},
		{fmt.Errorf("read: %w", redis.Nil), false},
		{reply("WRONGTYPE Operation against a key holding the wrong kind of value"), false},
		{fmt.Errorf("append: %w", reply("WRONGTYPE Operation …")), false},
		{reply("ERR Error running script (call to f_1): @user_script:3: WRONGTYPE Operation …"), false},
		{reply("NOGROUP No such key 's' or consumer group 'g'"), false},
		{reply("BUSYGROUP Consumer Group name already exists"), false},
		{reply("ERR The stream has exhausted the last possible ID, unable to add more items"), false},
		{io.EOF, true},
		{io.ErrUnexpectedEOF, true},
		{net.ErrClosed, true},
		{redis.ErrClosed, true},
		{redis.ErrPoolTimeout, true},
		{context.DeadlineExceeded, true},
		{fmt.Errorf("write: %w", context.Canceled), true},
		{reply("LOADING Redis is loading the dataset in memory"), true},
		{reply("READONLY You can't write against a read only replica."), true},
		{reply("OOM command not allowed when used memory > 'maxmemory'."), true},
		{reply("MISCONF Redis is configured to save RDB snapshots"), true},
		{reply("CLUSTERDOWN The cluster is down"), true},
		{reply("MOVED 1 127.0.0.1:7000"), true},
		{reply("NOSCRIPT No matching script. Please use EVAL."), true},
		{reply("EXECABORT Transaction discarded because of previous errors."), true},
		{reply("NOAUTH Authentication required."), true},
		{reply("ERR max number of clients reached"), true},
		{reply("ERR Error running script (call to f_1): @user_script:3: -OOM command not allowed"), true},
	} {
		if got := redisconn.IsTrouble(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

// What servers really answer: about one key, and about themselves.
func TestIsTrouble_RealReplies(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		ctx := t.Context()
		c := closing(t, s.Server().Conn(nil))
		c.Set(ctx, "string", "x", 0)
		for what, err := range map[string]error{
			"RPUSHX":    c.RPushX(ctx, "string", "y").Err(),
			"script":    c.Eval(ctx, "return redis.call('LLEN', KEYS[1])", []string{"string"}).Err(),
			"no group":  c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{"nothing", ">"}, Block: -1}).Err(),
			"no stream": c.XAdd(ctx, &redis.XAddArgs{Stream: "nothing", NoMkStream: true, Values: []string{"a", "b"}}).Err(),
		} {
			if err == nil || redisconn.IsTrouble(err) {
				t.Errorf("%s: %v, want an error about one key", what, err)
			}
		}
		if err := c.EvalSha(ctx, "0123456789012345678901234567890123456789", nil).Err(); !redisconn.IsTrouble(err) {
			t.Errorf("unknown script: %v, want trouble", err)
		}
	})
}
