package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/relay"
)

// The example of the specification's own libraries.
func TestWebhook_SignsAsStandardWebhooksSays(t *testing.T) {
	t.Parallel()
	w := webhook(t, "http://127.0.0.1:1/")
	got := w.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
	raw, err := relay.NewWebhook(relay.WebhookConfig{URL: "http://127.0.0.1:1/", Secret: "a secret that is no base64 at all"})
	if err != nil || raw.Sign("a", "1", nil) == w.Sign("a", "1", nil) {
		t.Errorf("raw secret: %v", err)
	}
}

func TestWebhook_Config(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, secret, says string }{
		{"", webhookSecret, "url"},
		{"ftp://host/x", webhookSecret, "url"},
		{"https:///x", webhookSecret, "url"},
		{"http://[::1", webhookSecret, "url"},
		{"http://host/", "", "secret"},
		{"http://host/", "short", "openssl"},
		{"http://host/", "whsec_AAAA", "openssl"},
		{"http://host/", "whsec_%%%", "base64"},
	} {
		_, err := relay.NewWebhook(relay.WebhookConfig{URL: c.url, Secret: c.secret})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q %q: %v", c.url, c.secret, err)
		}
		if c.secret != "" && err != nil && strings.Contains(err.Error(), c.secret) {
			t.Errorf("the secret is in %v", err)
		}
	}
}

func webhook(t testing.TB, url string) *relay.Webhook {
	t.Helper()
	w, err := relay.NewWebhook(relay.WebhookConfig{URL: url, Secret: webhookSecret, Timeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func notice(t testing.TB) relay.Notice {
	return relay.Notice{User: "ann", Event: envelope(t, 1), Reason: inbox.Offline, At: time.Now()}
}

func TestWebhook_Answers(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	for _, c := range []struct {
		status   int
		taken    bool
		disabled bool
		pause    time.Duration
		header   string
	}{
		{status: 200, taken: true}, {status: 202, taken: true}, {status: 204, taken: true},
		{status: 301}, {status: 307}, {status: 400}, {status: 404}, {status: 500},
		{status: 410, disabled: true},
		{status: 429, header: "7", pause: 7 * time.Second},
		{status: 503, header: "99999999", pause: 5 * time.Minute},
		{status: 503, header: "-5"}, {status: 503, header: "Wed, 21 Oct 2015 07:28:00 GMT"},
	} {
		t.Run(fmt.Sprint(c.status, c.header), func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", other.URL)
				w.Header().Set("Retry-After", c.header)
				w.WriteHeader(c.status)
			}))
			t.Cleanup(server.Close)
			err := webhook(t, server.URL).Send(t.Context(), notice(t))
			if (err == nil) != c.taken || errors.Is(err, relay.ErrSinkDisabled) != c.disabled {
				t.Errorf("got %v", err)
			}
			var said *relay.SinkError
			if errors.As(err, &said) && (said.RetryAfter != c.pause || said.Status != c.status) {
				t.Errorf("got %+v", said)
			}
		})
	}
	t.Cleanup(func() {
		if elsewhere.Load() != 0 {
			t.Error("a redirect was followed")
		}
	})
}

// A receiver that hangs, that never ends its answer, and none at all: each is a
// failure within the time limit, and no error shows the URL, which may hold a secret.
func TestWebhook_Trouble(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	hangs := func(http.ResponseWriter, *http.Request) { <-release }
	endless := func(w http.ResponseWriter, q *http.Request) {
		for q.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
				return
			}
		}
	}
	closes := func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_ = c.Close()
		}
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		taken   bool
	}{"hangs": {hangs, false}, "endless": {endless, true}, "closes": {closes, false}, "away": {nil, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.handler)
			url := server.URL + "/hook?token=hush"
			if c.handler == nil {
				server.Close()
			} else {
				t.Cleanup(server.Close)
			}
			if name == "hangs" {
				t.Cleanup(func() { close(release) })
			}
			began := time.Now()
			err := webhook(t, url).Send(t.Context(), notice(t))
			if (err == nil) != c.taken || time.Since(began) > 5*time.Second {
				t.Errorf("got %v after %v", err, time.Since(began))
			}
			if err != nil && strings.Contains(err.Error(), "hush") {
				t.Errorf("the URL is in %v", err)
			}
		})
	}
}

func TestWebhook_NamesHostOnly(t *testing.T) {
	t.Parallel()
	if s := webhook(t, "https://user:pass@host.example/hook?token=hush").String(); s != "https://host.example" {
		t.Errorf("shown as %s", s)
	}
}

// A sink that is down is asked by one try at a time, with growing pauses; one success
// opens the gate.
func TestGate_FailsAndOpens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := relay.NewGate(relay.NotifierConfig{Name: "n"})
		down := errors.New("down")
		for range relay.GateFailures - 1 {
			g.Tried(down)
		}
		if ok, _ := g.Enter(100); !ok {
			t.Fatal("shut too early")
		}
		g.Tried(down)
		began, tries := time.Now(), 0
		for time.Since(began) < 10*time.Minute {
			ok, again := g.Enter(0)
			if ok {
				tries++
				if busy, _ := g.Enter(1); busy {
					t.Fatal("two at a time")
				}
				g.Tried(down)
				continue
			}
			if !again.After(time.Now()) {
				t.Fatalf("asked to come again at %v, now is %v", again, time.Now())
			}
			time.Sleep(time.Until(again))
		}
		if tries < 8 || tries > 40 {
			t.Errorf("%d tries in ten minutes", tries)
		}
		if g.State() != relay.SinkFailing {
			t.Errorf("state %s", g.State())
		}
		g.Tried(nil)
		if ok, _ := g.Enter(100); !ok || g.State() != relay.SinkWell {
			t.Error("still shut")
		}
	})
}

// What a receiver refuses about single notices says nothing about the receiver.
func TestGate_RefusedNotices(t *testing.T) {
	t.Parallel()
	g := relay.NewGate(relay.NotifierConfig{Name: "n"})
	for range 10 * relay.GateFailures {
		g.Tried(&relay.SinkError{Status: http.StatusUnprocessableEntity})
	}
	if g.State() != relay.SinkWell {
		t.Errorf("state %s", g.State())
	}
	for range relay.GateFailures {
		g.Tried(&relay.SinkError{Status: http.StatusTooManyRequests})
	}
	if g.State() != relay.SinkFailing {
		t.Errorf("state %s", g.State())
	}
	g.Tried(fmt.Errorf("wrapped: %w", relay.ErrSinkDisabled))
	g.Tried(nil) // was under way
	if ok, again := g.Enter(0); ok || !again.IsZero() || g.State() != relay.SinkDisabled {
		t.Errorf("state %s", g.State())
	}
}

func TestNotifier_PausesHaveFullJitterUnderADoublingCap(t *testing.T) {
	t.Parallel()
	cfg := relay.NotifierConfig{Name: "n"}
	for failures, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 20: 5 * time.Minute, 10_000: 5 * time.Minute} {
		var low, high int
		for range 400 {
			p := cfg.Pause(failures)
			if p < 0 || p >= most {
				t.Fatalf("after %d failures: %v", failures, p)
			}
			if p < most/4 {
				low++
			} else if p > most*3/4 {
				high++
			}
		}
		if low < 40 || high < 40 {
			t.Errorf("after %d failures: %d below a quarter, %d above three of %v", failures, low, high, most)
		}
	}
}

func TestLogSink(t *testing.T) {
	t.Parallel()
	out := &logBuffer{}
	n := notice(t)
	if err := relay.NewLogSink(textLogger(out)).Send(context.Background(), n); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if !strings.Contains(text, "user=ann reason=offline") || !strings.Contains(text, n.Event.ID.String()) || strings.Contains(text, `"n"`) {
		t.Errorf("log %s", text)
	}
}
