package redisconn_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

func TestCheck_GoodServers(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		if err := s.Server().Check(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCheck_Password(t *testing.T) {
	t.Parallel()
	m, _ := mini(t)
	m.RequireUserAuth("ann", "sesame")
	for userinfo, want := range map[string]string{
		"ann:sesame@": "",
		"ann:secret@": "user name or password is wrong",
		"bob:sesame@": "user name or password is wrong",
		"":            "wants a password",
	} {
		err := parse(t, "redis://"+userinfo+m.Addr()).Check(t.Context())
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", userinfo, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", userinfo, err, want)
		case err != nil && (strings.Contains(err.Error(), "sesame") || strings.Contains(err.Error(), "secret")):
			t.Errorf("%q: the error gives a password away: %v", userinfo, err)
		}
	}
}

func TestCheck_RealPassword(t *testing.T) {
	t.Parallel()
	s := testkit.OwnRedis(t)
	c := s.Client(t)
	if err := c.ConfigSet(t.Context(), "requirepass", "sesame").Err(); err != nil {
		t.Fatal(err)
	}
	addr := strings.TrimPrefix(s.URL, "redis://")
	if err := parse(t, "redis://:sesame@"+addr).Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := parse(t, "redis://:secret@"+addr).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "password is wrong") {
		t.Errorf("wrong password: %v", err)
	}
	if err := parse(t, "redis://"+addr).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "wants a password") {
		t.Errorf("no password: %v", err)
	}
}

func TestCheck_RefusedServers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ version, mode, role, want string }{
		"old minor":    {"6.0.20", "standalone", "master", "6.2 or newer"},
		"old major":    {"5.9.9", "standalone", "master", "6.2 or newer"},
		"good":         {"6.2.0", "standalone", "master", ""},
		"two digits":   {"10.0.1", "standalone", "master", ""},
		"odd version":  {"unstable", "standalone", "master", "is it a Redis?"},
		"cluster node": {"7.0.0", "cluster", "master", "standalone"},
		"replica":      {"7.0.0", "standalone", "replica", "address of its master"},
	} {
		hello := fmt.Sprintf("*8\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$%d\r\n%s\r\n$4\r\nmode\r\n$%d\r\n%s\r\n$4\r\nrole\r\n$%d\r\n%s\r\n",
			len(c.version), c.version, len(c.mode), c.mode, len(c.role), c.role)
		err := parse(t, "redis://"+answering(t, hello)).Check(t.Context())
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for reply, want := range map[string]string{
		"-ERR unknown command `HELLO`, with args beginning with: `2`\r\n": "older than Redis 6.2",
		"-LOADING Redis is loading the dataset in memory\r\n":             "still loading",
		"HTTP/1.1 400 Bad Request\r\n\r\n":                                "can't be reached",
		"-ERR something else\r\n":                                         "something else",
	} {
		err := parse(t, "redis://"+answering(t, reply)).Check(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", reply, err, want)
		}
	}
}

func TestCheck_NoSuchDatabase(t *testing.T) {
	t.Parallel()
	s := testkit.OwnRedis(t)
	err := parse(t, s.URL+"/99").Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no database 99") {
		t.Errorf("%v, want one about the database", err)
	}
}

func TestCheck_Unreachable(t *testing.T) {
	t.Parallel()
	addr := testkit.FreeAddr(t)
	err := parse(t, "redis://:secret@"+addr).Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), "can't be reached") || !strings.Contains(err.Error(), addr) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v, want one that names the address", err)
	}
}

func TestCheck_Silent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := parse(t, "redis://"+answering(t, "")).Check(ctx); err == nil {
		t.Error("a server that never answers passed")
	}
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("the check outlived its context by %v", d)
	}
}

// answering is a server that answers every command with reply.
func answering(t testing.TB, reply string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			go answer(c, reply)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return l.Addr().String()
}

// answer looks at the first word of each command: a good server answers PING by itself.
func answer(c net.Conn, reply string) {
	answered := false
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		switch {
		case strings.HasPrefix(line, "*"):
			answered = false
		case strings.HasPrefix(line, "$") || answered:
		case strings.EqualFold(strings.TrimSpace(line), "ping") && strings.HasPrefix(reply, "*"):
			answered = true
			_, _ = c.Write([]byte("+PONG\r\n"))
		default:
			answered = true
			_, _ = c.Write([]byte(reply))
		}
	}
}
