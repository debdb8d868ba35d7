package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// hook is an application's endpoint for notifications: which user was told of which event, how often.
type hook struct {
	server *httptest.Server

	mu   sync.Mutex
	told map[string][]string // webhook-id's of each user, in order of arrival
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{told: map[string][]string{}}
	h.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Data struct {
				User  string     `json:"user"`
				Event cloudEvent `json:"event"`
			} `json:"data"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Errorf("notification: %v", err)
		}
		if want := body.Data.Event.ID + "." + body.Data.User; r.Header.Get("webhook-id") != want {
			t.Errorf("webhook-id %q, want %q", r.Header.Get("webhook-id"), want)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.told[body.Data.User] = append(h.told[body.Data.User], body.Data.Event.ID)
	}))
	t.Cleanup(h.server.Close)
	return h
}

func (h *hook) of(user string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.told[user])
}

// startNotifier runs a notifier that posts to the hook.
func (s *system) startNotifier(t *testing.T, h *hook, grace time.Duration) {
	t.Helper()
	internal := testkit.FreeAddr(t)
	p := &process{Process: testkit.Start(t, exec.Command(testkit.Binary(t),
		"notify", "--redis-url", s.RedisURL, "--internal-listen", internal, "--name", "notifier-1",
		"--webhook-url", h.server.URL, "--webhook-secret", "e2e-webhook-secret-of-24-bytes", "--notify-grace", grace.String(),
	)), internal: "http://" + internal}
	p.awaitReady(t)
}

// A socket server dies with unread and unsettled events in its inbox. Who comes back to another server
// misses nothing and sees nothing twice; who stays away is notified of each event once.
func TestSocketServerKilled(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, redisURL, mongoURL string) {
		s := startProcesses(t, redisURL, mongoURL, 2, 2)
		h := newHook(t)
		s.startNotifier(t, h, 2*time.Second)
		stays, leaves := newDevice(t, "stays", s.TokenSecret), newDevice(t, "leaves", s.TokenSecret)
		for _, d := range []*device{stays, leaves} {
			d.connect(s.Sockets[0])
		}
		both := []string{"stays", "leaves"}
		var want []string
		send := func(count int) (ids []string) {
			for i := range count {
				ids = append(ids, s.publish(t, s.Sockets[1], event{"to": both, "type": "test", "data": event{"i": i}})...)
			}
			want = append(want, ids...)
			return ids
		}
		send(10)
		stays.awaitShown(10*time.Second, 10)
		leaves.awaitShown(10*time.Second, 10)

		// Frozen first, so that what is sent now certainly lies in its inbox when it dies.
		s.sockets[0].Freeze(t)
		waiting := send(10)
		s.sockets[0].Kill(t)
		begun := time.Now()
		leaves.disconnect()
		stays.connect(s.Sockets[1])
		stays.awaitShown(10*time.Second, 20)
		if took := time.Since(begun); took > limit(2*time.Second) {
			t.Errorf("the reconnect took %s: it waits for nobody's lease", took)
		}
		waiting = append(waiting, send(5)...)
		stays.awaitShown(10*time.Second, 25)

		testkit.Eventually(t, 40*time.Second, "the one who left is notified of each event", func() bool {
			return len(h.of("leaves")) >= len(waiting)
		})
		s.awaitSettled(t, 20*time.Second)
		told := h.of("leaves")
		slices.Sort(told)
		slices.Sort(waiting)
		if !slices.Equal(told, waiting) {
			t.Errorf("notified %d times of %d events: %v", len(told), len(waiting), told)
		}
		if told := h.of("stays"); len(told) > 0 {
			t.Errorf("the one who came back was notified of %v", told)
		}
		sameOrder(t, "stays", stays.ids(), want)
		stays.check()
		if left := inboxes(t, s); left != 1 {
			t.Errorf("%d inboxes are left, want that of the server that lives", left)
		}
	})
}

func inboxes(t *testing.T, s *system) int {
	t.Helper()
	keys, err := redisAt(t, s.RedisURL).Keys(t.Context(), "socket:inbox:*").Result()
	if err != nil {
		t.Fatal(fmt.Errorf("list inboxes: %w", err))
	}
	return len(keys)
}
