package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The default client's idle connections end with the process.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
	)
}

const (
	apiKey = "e2e-key-0123456789"
	secret = "e2e-token-secret-of-at-least-32-bytes"
)

// system is a running lastmile, whatever it is made of.
type system struct {
	Chat        string   `json:"chat"`
	Sockets     []string `json:"sockets"`
	Internal    string   `json:"internal"`
	RedisURL    string   `json:"redisUrl"`
	MongoURL    string   `json:"mongoUrl"`
	APIKey      string   `json:"apiKey"`
	TokenSecret string   `json:"tokenSecret"`

	// processes of a system of several, empty in dev
	relays  []*process
	sockets []*process
}

// process is one of them, with the page that tells whether it is ready.
type process struct {
	*testkit.Process
	internal string
}

// startDev runs `lastmile dev` on free ports and waits for its line.
func startDev(t testing.TB, extra ...string) (*system, *testkit.Process) {
	t.Helper()
	args := append([]string{
		"dev", "--json", "--listen", "127.0.0.1:0", "--socket-listen", "127.0.0.1:0,127.0.0.1:0",
		"--internal-listen", "127.0.0.1:0", "--redis-listen", "127.0.0.1:0", "--mongo-listen", "127.0.0.1:0",
	}, extra...)
	command := exec.Command(testkit.Binary(t), args...)
	reader, writer := io.Pipe()
	command.Stdout = writer
	started := testkit.Start(t, command)
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(reader).ReadString('\n')
		lines <- line
		_, _ = io.Copy(io.Discard, reader)
	}()
	t.Cleanup(func() { _ = writer.Close() })
	select {
	case line := <-lines:
		s := new(system)
		if err := json.Unmarshal([]byte(line), s); err != nil {
			t.Fatalf("dev --json printed %q: %v", line, err)
		}
		return s, started
	case <-time.After(30 * time.Second):
		t.Fatalf("dev is not ready after 30 s:\n%s", started.Output())
		return nil, nil
	}
}

// startProcesses runs the parts as processes of their own on the given Redis and MongoDB.
func startProcesses(t testing.TB, redisURL, mongoURL string, relays, sockets int) *system {
	t.Helper()
	s := &system{RedisURL: redisURL, MongoURL: mongoURL, APIKey: apiKey, TokenSecret: secret}
	for i := range relays {
		s.startRelay(t, fmt.Sprintf("relay-%d", i+1))
	}
	for i := range sockets {
		s.startSocket(t, fmt.Sprintf("socket-%d", i+1))
	}
	public := testkit.FreeAddr(t)
	args := []string{
		"chat", "--mongo-url", mongoURL, "--token-secret", secret, "--listen", public, "--internal-listen", testkit.FreeAddr(t),
	}
	for _, socket := range s.Sockets {
		args = append(args, "--socket", socket)
	}
	testkit.Start(t, exec.Command(testkit.Binary(t), args...))
	s.Chat = "http://" + public
	for _, p := range append(append([]*process{}, s.relays...), s.sockets...) {
		p.awaitReady(t)
	}
	return s
}

func (s *system) startRelay(t testing.TB, name string, extra ...string) *process {
	t.Helper()
	internal := testkit.FreeAddr(t)
	args := append([]string{
		"relay", "--redis-url", s.RedisURL, "--mongo-url", s.MongoURL, "--internal-listen", internal, "--name", name,
	}, extra...)
	p := &process{Process: testkit.Start(t, exec.Command(testkit.Binary(t), args...)), internal: "http://" + internal}
	s.relays = append(s.relays, p)
	return p
}

func (s *system) startSocket(t testing.TB, name string) *process {
	t.Helper()
	internal, public := testkit.FreeAddr(t), testkit.FreeAddr(t)
	p := &process{Process: testkit.Start(t, exec.Command(testkit.Binary(t),
		"socket", "--redis-url", s.RedisURL, "--mongo-url", s.MongoURL, "--internal-listen", internal, "--name", name,
		"--listen", public, "--token-secret", secret, "--api-key", apiKey, "--drain", "500ms",
	)), internal: "http://" + internal}
	s.sockets = append(s.sockets, p)
	s.Sockets = append(s.Sockets, "http://"+public)
	return p
}

func (p *process) awaitReady(t testing.TB) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, p.internal+" is ready", func() bool {
		response, err := http.Get(p.internal + "/readyz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode == http.StatusOK
	})
}

// event is what tests publish.
type event map[string]any

// publish posts one event or several and returns their ids.
func (s *system) publish(t testing.TB, base string, events ...event) []string {
	t.Helper()
	status, body := s.post(t, base, events)
	if status != http.StatusAccepted {
		t.Fatalf("publish: %d %s", status, body)
	}
	var answer struct {
		IDs []string `json:"ids"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || len(answer.IDs) != len(events) {
		t.Fatalf("publish %d events: answer %s: %v", len(events), body, err)
	}
	return answer.IDs
}

func (s *system) post(t testing.TB, base string, value any) (int, []byte) {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/events", bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.APIKey)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body
}

// awaitSettled waits until no inbox holds or waits for anything.
func (s *system) awaitSettled(t testing.TB, within time.Duration) {
	t.Helper()
	server := redisAt(t, s.RedisURL)
	ctx := context.Background()
	testkit.Eventually(t, within, "inboxes are empty", func() bool {
		keys, err := server.Keys(ctx, "socket:inbox:*").Result()
		if err != nil || len(keys) == 0 {
			return false
		}
		for _, key := range keys {
			length, err := server.XLen(ctx, key).Result()
			if err != nil || length > 0 {
				return false
			}
			pending, err := server.XPending(ctx, key, "socket").Result()
			if err != nil || pending.Count > 0 {
				return false
			}
		}
		return true
	})
}

func sameOrder(t testing.TB, who string, got, want []string) {
	t.Helper()
	if len(got) == len(want) {
		same := true
		for i := range got {
			same = same && got[i] == want[i]
		}
		if same {
			return
		}
	}
	t.Errorf("%s: shown %d events, published %d; first difference: %s", who, len(got), len(want), firstDifference(got, want))
}

func firstDifference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Sprintf("#%d missing: %s", i, want[i])
		case i >= len(want):
			return fmt.Sprintf("#%d too many: %s", i, got[i])
		case got[i] != want[i]:
			return fmt.Sprintf("#%d is %s, want %s (%s)", i, got[i], want[i], strings.Join(got[max(0, i-2):min(len(got), i+3)], " "))
		}
	}
	return "none"
}

// limit is a time that the product promises, longer where it runs under the race detector beside
// other tests.
func limit(promised time.Duration) time.Duration { return promised * slowdown }

// owner finds the relay that owns the partition, as an operator does: by the status page.
func (s *system) owner(t testing.TB) *process {
	t.Helper()
	var found *process
	testkit.Eventually(t, 15*time.Second, "a relay owns the partition", func() bool {
		for _, p := range s.relays {
			status := struct {
				Instance   string `json:"instance"`
				Partitions []struct {
					Owner string `json:"owner"`
				} `json:"partitions"`
			}{}
			if p.status(&status) && len(status.Partitions) == 1 && status.Partitions[0].Owner == status.Instance {
				found = p
				return true
			}
		}
		return false
	})
	return found
}

// status reads the status page, if the process answers.
func (p *process) status(into any) bool {
	response, err := http.Get(p.internal + "/statusz")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(into) == nil
}

func awaitListening(t testing.TB, addresses ...string) {
	t.Helper()
	for _, address := range addresses {
		testkit.Eventually(t, 10*time.Second, address+" listens", func() bool {
			conn, err := net.DialTimeout("tcp", address, time.Second)
			if err != nil {
				return false
			}
			return conn.Close() == nil
		})
	}
}
