package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// hook receives the webhooks, and is as bad at it as receivers are.
type hook struct {
	// fixed after construction
	url    string
	ledger *ledger

	mu       sync.Mutex
	random   *rand.Rand
	calm     bool
	notices  map[pair]*notice
	failures int
	faults   []string // what no notifier may do
}

// pair is one recipient of one event.
type pair struct {
	n    int // of the event
	user string
}

// notice is a notification that was taken.
type notice struct {
	taken []receipt
}

// receipt is one call that was taken.
type receipt struct {
	handed   time.Time // when the pair was handed over for notification, as the body says
	at       time.Time
	answered bool // false: the notifier can't know, and has to send it again
}

func newHook(t testing.TB, seed uint64, l *ledger) *hook {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for webhooks: %v", err)
	}
	h := &hook{url: "http://" + listener.Addr().String() + "/hook", ledger: l, random: draw(seed, drawWebhook, 0), notices: map[pair]*notice{}}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			h.fault("serve webhooks: %v", err)
		}
	})
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return h
}

// ServeHTTP takes a notice, or fails: one in ten calls is refused, one in fifty is taken and never answered.
func (h *hook) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	body, err := io.ReadAll(io.LimitReader(in.Body, 1<<20))
	if err != nil {
		return // the notifier was killed while it sent
	}
	h.mu.Lock()
	luck := h.random.Float64()
	if h.calm {
		luck = 1
	}
	h.mu.Unlock()
	if luck < 0.10 {
		h.mu.Lock()
		h.failures++
		h.mu.Unlock()
		http.Error(out, "not now", http.StatusServiceUnavailable)
		return
	}
	h.take(in.Header, body, luck >= 0.12)
	if luck < 0.12 {
		hang(in.Context())
		panic(http.ErrAbortHandler) // the connection ends without an answer
	}
	out.WriteHeader(http.StatusNoContent)
}

func hang(ctx context.Context) { pause(ctx, 500*time.Millisecond) }

func (h *hook) take(header http.Header, body []byte, answered bool) {
	id, stamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	mac := hmac.New(sha256.New, []byte(hookSecret))
	fmt.Fprintf(mac, "%s.%s.", id, stamp)
	mac.Write(body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); header.Get("webhook-signature") != want {
		h.fault("webhook %s: its signature is wrong", id)
		return
	}
	var notification struct {
		Timestamp time.Time `json:"timestamp"`
		Data      struct {
			User  string `json:"user"`
			Event struct {
				ID string `json:"id"`
			} `json:"event"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &notification); err != nil {
		h.fault("webhook %s: %v", id, err)
		return
	}
	event, user, _ := strings.Cut(id, ".")
	e := h.ledger.find(event)
	switch {
	case e == nil:
		h.fault("webhook %s: nobody published that event", id)
	case user != notification.Data.User || event != notification.Data.Event.ID:
		h.fault("webhook %s: its body is about another pair", id)
	case e.ephemeral || e.quiet:
		h.fault("webhook %s: the event asks for no notification", id)
	default:
		h.note(pair{e.n, user}, notification.Timestamp, answered)
	}
}

func (h *hook) note(p pair, handed time.Time, answered bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.notices[p]
	if one == nil {
		one = &notice{}
		h.notices[p] = one
	}
	one.taken = append(one.taken, receipt{handed: handed, at: time.Now(), answered: answered})
}

func (h *hook) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

// better has the receiver fail no more.
func (h *hook) better() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calm = true
}

// taken is a copy of all notices.
func (h *hook) taken() map[pair]notice {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[pair]notice, len(h.notices))
	for p, one := range h.notices {
		out[p] = notice{taken: append([]receipt{}, one.taken...)}
	}
	return out
}
