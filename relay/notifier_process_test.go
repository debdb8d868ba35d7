package relay_test

import (
	"context"
	"net/http"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/relay"
)

// process starts a notifier as an operator does.
func (s *stand) process(name, webhook, grace string) *testkit.Process {
	s.t.Helper()
	p := testkit.Start(s.t, exec.Command(testkit.Binary(s.t), "notify", "--name", name, "--internal-listen", "127.0.0.1:0",
		"--redis-url", s.redis.URL, "--webhook-url", webhook, "--webhook-secret", webhookSecret, "--notify-grace", grace, "--notify-claim-idle", "6s"))
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("log of notifier %s:\n%s", name, p.Output())
		}
	})
	return p
}

// A process that is killed while the receiver answers: another takes over, and the receiver gets the same id again.
func TestNotifier_ProcessKilledWhileSending(t *testing.T) {
	t.Parallel()
	s := newStand(t, testkit.FirstRedis(t))
	called, answer := make(chan struct{}), make(chan struct{})
	web := newReceiver(t, func(n int, _ string, _ http.ResponseWriter) {
		if n == 1 {
			close(called)
			<-answer
		}
	})
	v := envelope(t, 1)
	s.hand(v, time.Now(), noLog("ann", "bob")...)
	first := s.process("first", web.url, "100ms")
	<-called
	first.Kill(t)
	close(answer)
	second := s.process("second", web.url, "100ms")
	s.empty(90 * time.Second)
	if web.got(v, "ann") == 0 || web.got(v, "bob") == 0 || web.doubled() > 2 {
		t.Errorf("taken: %v", web.taken)
	}
	second.Terminate(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := second.Wait(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// A process that is frozen while it holds an entry, for longer than it may: another
// notifies the pair, and the first one, awake again, does not.
func TestNotifier_ProcessFrozen(t *testing.T) {
	t.Parallel()
	s, web := newStand(t, testkit.FirstRedis(t)), newReceiver(t, nil)
	first := s.process("first", web.url, "2s")
	v := envelope(t, 1)
	s.hand(v, time.Now(), noLog("ann")...)
	eventually(t, 30*time.Second, "the first holds the entry", func() bool {
		p, err := s.rdb.XPending(t.Context(), inbox.Notifications, inbox.NotificationGroup).Result()
		return err == nil && p.Count == 1
	})
	first.Freeze(t)
	s.process("second", web.url, "2s")
	eventually(t, 90*time.Second, "the second notifies", func() bool { return web.got(v, "ann") == 1 })
	first.Thaw(t)
	w := envelope(t, 2)
	s.hand(w, time.Now(), noLog("ann")...)
	s.empty(60 * time.Second)
	if _, calls := web.total(); calls != 2 || web.got(v, "ann") != 1 || web.got(w, "ann") != 1 {
		t.Errorf("%d calls, taken %v", calls, web.taken)
	}
}

// A relay tells when notifications wait and nobody reads them.
func TestRelay_AlarmWithoutANotifier(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := redisconn.Parse("redis://127.0.0.1:1") // never dialled
		if err != nil {
			t.Fatal(err)
		}
		r, err := relay.NewOver(relay.Config{Name: "r"}, server, nil)
		if err != nil {
			t.Fatal(err)
		}
		w := relay.NewReaderWatch(r)
		if text := w.Looked(1, -1); text != "" {
			t.Errorf("alarm at once: %s", text)
		}
		time.Sleep(2 * time.Minute)
		if text := w.Looked(0, -1); text != "" {
			t.Errorf("alarm where nothing waits: %s", text)
		}
		if w.Looked(1, -1) == "" {
			t.Error("no alarm without any reader")
		}
		if text := w.Looked(1, time.Second); text != "" {
			t.Errorf("alarm beside a reader: %s", text)
		}
		if w.Looked(5, 2*time.Minute) != "" {
			t.Error("the reader was there a moment ago")
		}
		time.Sleep(2 * time.Minute)
		if w.Looked(5, 4*time.Minute) == "" {
			t.Error("no alarm about a reader that is gone")
		}
	})
}
