package e2e_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

type outcome struct {
	status         int
	stdout, stderr string
}

// command runs the binary to its end.
func command(t testing.TB, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	run := exec.CommandContext(ctx, testkit.Binary(t), args...)
	run.Stdout, run.Stderr = &stdout, &stderr
	err := run.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{status: run.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	unused := testkit.FreeAddr(t)
	old := oldRedis(t)
	goodRedis := testkit.EmbeddedRedis(t).URL
	standalone := standaloneMongo(t)
	cases := map[string]struct {
		args   []string
		status int
		says   []string
	}{
		"wrong flag":            {[]string{"relay", "--redis-ulr", "x"}, 2, []string{"--redis-ulr", "lastmile relay --help"}},
		"wrong command":         {[]string{"rely"}, 2, []string{"rely"}},
		"wrong scheme":          {[]string{"relay", "--redis-url", "http://127.0.0.1:1", "--internal-listen", "127.0.0.1:0"}, 1, []string{"--redis-url", "redis://"}},
		"Redis unreachable":     {[]string{"relay", "--redis-url", "redis://" + unused, "--internal-listen", "127.0.0.1:0"}, 1, []string{unused}},
		"Redis too old":         {[]string{"relay", "--redis-url", "redis://" + old, "--internal-listen", "127.0.0.1:0"}, 1, []string{"6.2"}},
		"MongoDB unreachable":   {[]string{"relay", "--redis-url", goodRedis, "--mongo-url", "mongodb://" + unused + "/x", "--internal-listen", "127.0.0.1:0"}, 1, []string{unused}},
		"MongoDB standalone":    {[]string{"relay", "--redis-url", goodRedis, "--mongo-url", "mongodb://" + standalone + "/x", "--internal-listen", "127.0.0.1:0"}, 1, []string{"replica set"}},
		"no token secret":       {[]string{"socket"}, 2, []string{"--token-secret"}},
		"short token secret":    {[]string{"socket", "--token-secret", "short"}, 1, []string{"openssl"}},
		"published secret":      {[]string{"socket", "--token-secret", "lastmile-dev-secret-that-everybody-knows"}, 1, []string{"openssl"}},
		"taken port":            {[]string{"relay", "--internal-listen", strings.TrimPrefix(goodRedis, "redis://")}, 1, []string{"--internal-listen"}},
		"healthcheck of nobody": {[]string{"healthcheck", "--url", "http://" + unused + "/readyz"}, 1, []string{unused}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := command(t, c.args...)
			if got.status != c.status {
				t.Errorf("exit status %d, want %d: %s", got.status, c.status, got.stderr)
			}
			for _, says := range c.says {
				if !strings.Contains(got.stderr, says) {
					t.Errorf("does not say %q: %s", says, got.stderr)
				}
			}
			if lines := strings.Count(strings.TrimSpace(got.stderr), "\n"); c.status == 1 && lines > 0 {
				t.Errorf("more than one line: %s", got.stderr)
			}
		})
	}
}

// standaloneMongo answers the handshake as a mongod without a replica set does, and everything else as
// it answers a change stream.
func standaloneMongo(t testing.TB) string {
	t.Helper()
	hello := bson.D{
		{Key: "helloOk", Value: true}, {Key: "isWritablePrimary", Value: true}, {Key: "ismaster", Value: true},
		{Key: "maxBsonObjectSize", Value: 16 << 20}, {Key: "maxMessageSizeBytes", Value: 48000000}, {Key: "maxWriteBatchSize", Value: 100000},
		{Key: "logicalSessionTimeoutMinutes", Value: 30}, {Key: "connectionId", Value: 1},
		{Key: "minWireVersion", Value: 0}, {Key: "maxWireVersion", Value: 9}, {Key: "readOnly", Value: false}, {Key: "ok", Value: 1.0},
	}
	return answering(t, func(conn net.Conn) {
		for {
			header := make([]byte, 16)
			if _, err := io.ReadFull(conn, header); err != nil {
				return
			}
			body := make([]byte, binary.LittleEndian.Uint32(header)-16)
			if _, err := io.ReadFull(conn, body); err != nil {
				return
			}
			query := binary.LittleEndian.Uint32(header[12:]) == 2004
			answer := hello
			if !query && !bytes.Contains(body, []byte("hello")) && !bytes.Contains(body, []byte("isMaster")) {
				answer = bson.D{{Key: "version", Value: "4.4.6"}, {Key: "ok", Value: 1.0}}
			}
			if _, err := conn.Write(mongoReply(t, header[4:8], query, answer)); err != nil {
				return
			}
		}
	})
}

// mongoReply frames an answer as OP_REPLY to an OP_QUERY, else as OP_MSG.
func mongoReply(t testing.TB, to []byte, query bool, answer bson.D) []byte {
	raw, err := bson.Marshal(answer)
	if err != nil {
		t.Error(err)
	}
	before, opcode := make([]byte, 5), uint32(2013)
	if query {
		before, opcode = make([]byte, 20), 1
		before[16] = 1 // one document
	}
	message := binary.LittleEndian.AppendUint32(nil, uint32(16+len(before)+len(raw)))
	message = append(message, 0, 0, 0, 0)
	message = append(message, to...)
	message = binary.LittleEndian.AppendUint32(message, opcode)
	return append(append(message, before...), raw...)
}

func TestHelpShowsDefaultsAndEnvironment(t *testing.T) {
	t.Parallel()
	got := command(t, "relay", "--help")
	for _, says := range []string{"--redis-url", "redis://127.0.0.1:6379", "$LASTMILE_REDIS_URL", "--partitions=1"} {
		if !strings.Contains(got.stdout, says) {
			t.Errorf("help of relay lacks %q:\n%s", says, got.stdout)
		}
	}
}

func TestTokenIsGoodForDev(t *testing.T) {
	t.Parallel()
	s, _ := startDev(t)
	got := command(t, "token", "--user", "gina", "--publish", "chat.*")
	if got.status != 0 {
		t.Fatal(got.stderr)
	}
	claims := jwt.MapClaims{}
	_, err := jwt.ParseWithClaims(strings.TrimSpace(got.stdout), claims, func(*jwt.Token) (any, error) { return []byte(s.TokenSecret), nil })
	if err != nil || claims["sub"] != "gina" {
		t.Errorf("token of %v: %v", claims, err)
	}
}

func TestPublishCommandReachesTheBrowser(t *testing.T) {
	t.Parallel()
	s, _ := startDev(t)
	reader := newDevice(t, "hugo", s.TokenSecret)
	reader.connect(s.Sockets[1])
	got := command(t, "publish", "--mongo-url", s.MongoURL, "--to", "hugo", "--type", "test", "--data", `{"a":1}`)
	if got.status != 0 {
		t.Fatal(got.stderr)
	}
	reader.awaitShown(5*time.Second, 1)
	sameOrder(t, "hugo", reader.ids(), []string{strings.TrimSpace(got.stdout)})
	if bad := command(t, "publish", "--mongo-url", s.MongoURL, "--to", "hugo", "--type", "test", "--data", `[]`); bad.status != 1 || !strings.Contains(bad.stderr, "/data") {
		t.Errorf("data that is no object: %d %s", bad.status, bad.stderr)
	}
}

// oldRedis answers like a Redis 5: it doesn't know HELLO.
func oldRedis(t testing.TB) string {
	t.Helper()
	return answering(t, func(conn net.Conn) {
		buffer := make([]byte, 4096)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				return
			}
			// One answer a command: commands begin with '*'.
			for range bytes.Count(buffer[:n], []byte("*")) {
				if _, err := conn.Write([]byte("-ERR unknown command `HELLO`, with args beginning with: \r\n")); err != nil {
					return
				}
			}
		}
	})
}

// answering listens until the test ends and hands every connection to handle.
func answering(t testing.TB, handle func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return listener.Addr().String()
}
