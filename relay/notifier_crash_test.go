package relay_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/relay"
)

// fatal kills a notifier at one of its commands: nothing of it reaches Redis any more.
type fatal struct {
	dead  atomic.Bool
	at    func(text string) bool        // the command at which it dies
	after bool                          // the command has its effect, and only the reply is lost
	hold  atomic.Pointer[chan struct{}] // no command goes out until it is closed
}

func (f *fatal) hook(n *relay.Notifier) {
	n.OnConn(func(c redis.UniversalClient) { c.AddHook(f) })
}

func (f *fatal) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (f *fatal) run(text string, do func() error, fail func() error) error {
	if hold := f.hold.Load(); hold != nil {
		<-*hold
	}
	switch hit := f.at != nil && f.at(text); {
	case f.dead.Load():
		return fail()
	case hit && !f.after:
		f.dead.Store(true)
		return fail()
	case hit:
		if err := do(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			return err // it has had no effect yet, the text follows
		}
		f.dead.Store(true)
		return fail()
	}
	return do()
}

func (f *fatal) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return f.run(fmt.Sprint(cmd.Args()...), func() error { return next(ctx, cmd) }, func() error { cmd.SetErr(errDead); return errDead })
	}
}

func (f *fatal) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var text strings.Builder
		for _, c := range cmds {
			fmt.Fprintln(&text, c.Args()...)
		}
		return f.run(text.String(), func() error { return next(ctx, cmds) }, func() error { return kill(cmds) })
	}
}

// notifierStep is a command of a notifier.
type notifierStep struct {
	name string
	at   func(text string) bool
}

func notifierSteps() []notifierStep {
	marks := func(text string) bool {
		return strings.HasPrefix(text, "eval") && strings.Contains(text, "socket:notified:")
	}
	ends := func(text string) bool { return marks(text) && strings.Contains(text, "SENT") }
	return []notifierStep{
		{"read", func(text string) bool {
			return strings.HasPrefix(text, "xreadgroup") && strings.HasSuffix(text, ">")
		}},
		{"look at the user", func(text string) bool { return strings.Contains(text, "user:{ann}") }},
		{"take the mark", func(text string) bool { return marks(text) && !ends(text) }},
		{"sent", ends},
		{"settle", func(text string) bool { return strings.Contains(text, "xack") }},
	}
}

// One notifier dies between any two of its steps; another goes on. Nobody is left
// out, and only what the dead one had under way may be sent again, under its id.
func TestNotifier_KilledBetweenAnyTwoSteps(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for _, step := range notifierSteps() {
			t.Run(fmt.Sprintf("%s/after=%t", step.name, after), func(t *testing.T) {
				t.Parallel()
				testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) { killNotifierAt(t, r, step, after) })
			})
		}
	}
}

func killNotifierAt(t *testing.T, r *testkit.Redis, step notifierStep, after bool) {
	s, web := newStand(t, r), newReceiver(t, nil)
	v, w := envelope(t, 1), envelope(t, 2)
	s.hand(v, time.Now(), noLog("ann", "bob", "carol")...)
	s.hand(w, time.Now(), noLog("ann")...)
	f := &fatal{at: step.at, after: after}
	cfg := hastyNotifier("first")
	cfg.Concurrency = 1
	first := s.notifier(cfg, mortal{Sink: web.sink(), dead: &f.dead}, f.hook)
	eventually(t, 10*time.Second, "the first dies", f.dead.Load)
	first.stop()
	s.notifier(hastyNotifier("second"), web.sink())
	s.empty(20 * time.Second)
	for _, u := range []string{"ann", "bob", "carol"} {
		if web.taken[v.ID.String()+"."+u] == 0 {
			t.Errorf("%s was not notified", u)
		}
	}
	if web.got(w, "ann") == 0 {
		t.Error("the second event was not notified")
	}
	// One entry is settled beside the sending of the next, which dies with it.
	sending := step.name == "sent" || step.name == "settle"
	if n := web.doubled(); n > 1 || n == 1 && !sending {
		t.Errorf("%d doubled", n)
	}
}

// One notifier dies while it gives a pair up; another does it again, or finds it done.
func TestNotifier_KilledWhileGivingUp(t *testing.T) {
	t.Parallel()
	giveUp := []notifierStep{
		{"dead letter", func(text string) bool { return strings.Contains(text, inbox.DeadNotification) }},
		{"dead", func(text string) bool { return strings.HasPrefix(text, "eval") && strings.Contains(text, "DEAD") }},
		{"settle", func(text string) bool { return strings.Contains(text, "xack") }},
	}
	for _, after := range []bool{false, true} {
		for _, step := range giveUp {
			t.Run(fmt.Sprintf("%s/after=%t", step.name, after), func(t *testing.T) {
				t.Parallel()
				s := newStand(t, testkit.FirstRedis(t))
				web := newReceiver(t, func(_ int, _ string, w http.ResponseWriter) { w.WriteHeader(http.StatusBadRequest) })
				v := envelope(t, 1)
				s.hand(v, time.Now(), noLog("ann", "bob")...)
				f := &fatal{at: step.at, after: after}
				cfg := hastyNotifier("first")
				cfg.Limit = 300 * time.Millisecond
				first := s.notifier(cfg, mortal{Sink: web.sink(), dead: &f.dead}, f.hook)
				eventually(t, 10*time.Second, "the first dies", f.dead.Load)
				first.stop()
				cfg.Name = "second"
				s.notifier(cfg, web.sink())
				s.empty(20 * time.Second)
				letters := s.rdb.XLen(t.Context(), inbox.DeadNotification).Val()
				again := step.name == "dead letter" && after || step.name == "dead"
				if letters < 1 || letters > 2 || letters == 2 && !again {
					t.Errorf("%d dead letters", letters)
				}
				for _, u := range []protocol.UserID{"ann", "bob"} {
					if m := s.mark(v, u); m.State != inbox.MarkDead {
						t.Errorf("mark of %s: %v", u, m)
					}
				}
			})
		}
	}
}

// The notifier dies in the sink's call, before and after the receiver took it.
func TestNotifier_KilledWhileSending(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} {
		t.Run(fmt.Sprintf("taken=%t", taken), func(t *testing.T) {
			t.Parallel()
			s := newStand(t, testkit.FirstRedis(t))
			var f fatal
			web := newReceiver(t, func(n int, _ string, w http.ResponseWriter) {
				if n == 1 {
					f.dead.Store(true)
					if !taken {
						w.WriteHeader(http.StatusBadGateway)
					}
				}
			})
			v := envelope(t, 1)
			s.hand(v, time.Now(), noLog("ann")...)
			first := s.notifier(hastyNotifier("first"), mortal{Sink: web.sink(), dead: &f.dead}, f.hook)
			eventually(t, 10*time.Second, "the first dies", f.dead.Load)
			first.stop()
			s.notifier(hastyNotifier("second"), web.sink())
			s.empty(20 * time.Second)
			if _, calls := web.total(); calls != 2 || web.got(v, "ann") == 0 {
				t.Errorf("%d calls, taken %d times", calls, web.got(v, "ann"))
			}
		})
	}
}

// Two notifiers and a sink that fails half the time; one notifier is killed. Each
// pair is taken; only what the killed one had under way is taken twice.
func TestNotifier_TwoAndOneIsKilled(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s := newStand(t, r)
		var f fatal
		var half atomic.Int64
		web := newReceiver(t, func(n int, _ string, w http.ResponseWriter) {
			if half.Add(1)%2 == 0 {
				w.WriteHeader(http.StatusInternalServerError)
			}
			if n == 150 {
				f.dead.Store(true)
			}
		})
		cfg := quickNotifier("first")
		cfg.Concurrency = 4
		first := s.notifier(cfg, mortal{Sink: web.sink(), dead: &f.dead}, f.hook)
		s.notifier(quickNotifier("second"), web.sink())
		const events = 300
		for i := range events {
			s.hand(envelope(t, i), time.Now(), noLog("ann", "bob")...)
		}
		eventually(t, 20*time.Second, "the first dies", f.dead.Load)
		first.stop()
		s.empty(40 * time.Second)
		if ids, _ := web.total(); ids != 2*events {
			t.Errorf("%d of %d were notified", ids, 2*events)
		}
		if n := web.doubled(); n > cfg.Concurrency {
			t.Errorf("%d doubled, the killed one had %d calls under way", n, cfg.Concurrency)
		}
	})
}

// A notifier that is held up for longer than it may hold an entry, while another has
// claimed it and is sending: awake again it does not send too.
func TestNotifier_HeldUpWhileAnotherSends(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s := newStand(t, r)
		var f fatal
		release := make(chan struct{})
		called, answer := make(chan struct{}, 10), make(chan struct{})
		web := newReceiver(t, func(n int, _ string, _ http.ResponseWriter) {
			called <- struct{}{}
			if n == 1 {
				<-answer
			}
		})
		cfg := hastyNotifier("first")
		cfg.Grace = 1200 * time.Millisecond
		first := s.notifier(cfg, web.sink(), f.hook)
		v := envelope(t, 1)
		s.hand(v, time.Now(), noLog("ann")...)
		eventually(t, 10*time.Second, "the first holds the entry", func() bool { return first.Status().Held == 1 })
		f.hold.Store(&release)
		s.notifier(hastyNotifier("second"), web.sink())
		<-called
		close(release)
		eventually(t, 10*time.Second, "the first gives up", func() bool {
			return first.counts(t, "lastmile_notifier_breaks_total")[""] > 0 || first.Status().Held == 0 || len(called) > 0
		})
		close(answer)
		s.empty(20 * time.Second)
		if _, calls := web.total(); calls != 1 {
			t.Errorf("%d calls", calls)
		}
	})
}

// What is held for longer than others wait is renewed: they leave it alone.
func TestNotifier_RenewsWhatItHolds(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s, web := newStand(t, r), newReceiver(t, nil)
		cfg := quickNotifier("first")
		cfg.Grace = 8 * time.Second
		first := s.notifier(cfg, web.sink())
		v := envelope(t, 1)
		s.hand(v, time.Now(), noLog("ann")...)
		eventually(t, 10*time.Second, "the first holds the entry", func() bool { return first.Status().Held == 1 })
		cfg.Name = "second"
		second := s.notifier(cfg, web.sink())
		s.empty(20 * time.Second)
		if n := first.counts(t, "lastmile_notifier_claimed_entries_total")[""] + second.counts(t, "lastmile_notifier_claimed_entries_total")[""]; n != 0 {
			t.Errorf("%d entries were claimed", n)
		}
		if web.got(v, "ann") != 1 {
			t.Errorf("taken: %v", web.taken)
		}
	})
}

// A stop takes no more, finishes what is under way, and gives the rest back at once.
func TestNotifier_StopHandsBack(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s := newStand(t, r)
		entered, leave := make(chan struct{}), make(chan struct{})
		web := newReceiver(t, func(n int, _ string, _ http.ResponseWriter) {
			if n == 1 {
				close(entered)
				<-leave
			}
		})
		cfg := quickNotifier("first")
		cfg.Concurrency, cfg.ClaimIdle, cfg.Renew = 1, time.Minute, time.Second
		first := s.notifier(cfg, web.sink())
		v, w := envelope(t, 1), envelope(t, 2)
		s.hand(v, time.Now(), noLog("ann")...)
		s.hand(w, time.Now(), noLog("ann")...)
		<-entered
		go func() {
			<-time.After(100 * time.Millisecond)
			close(leave)
		}()
		first.stop()
		cfg.Name, cfg.Concurrency = "second", 16
		s.notifier(cfg, web.sink())
		s.empty(10 * time.Second) // less than the minute that a claim would wait
		if web.got(v, "ann") != 1 || web.got(w, "ann") != 1 {
			t.Errorf("taken: %v", web.taken)
		}
		if n := s.rdb.ZCard(t.Context(), "relay:instances").Val(); n != 1 {
			t.Errorf("%d leases", n)
		}
	})
}

// A connection that breaks while the sink is called, in either direction: what the
// sink took is remembered, and not sent again.
func TestNotifier_LostConnections(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s := newStand(t, r)
		proxy := testkit.NewProxy(t, strings.TrimPrefix(r.URL, "redis://"))
		server, err := redisconn.Parse("redis://" + proxy.Addr())
		if err != nil {
			t.Fatal(err)
		}
		web := newReceiver(t, func(n int, _ string, _ http.ResponseWriter) {
			if n%10 == 3 {
				proxy.Cut()
			}
		})
		cfg := quickNotifier("n")
		cfg.ClaimIdle, cfg.Renew = time.Minute, time.Second // what it held it finds by itself
		n := s.notifierAt(server, cfg, web.sink())
		const events = 60
		for i := range events {
			s.hand(envelope(t, i), time.Now(), noLog("ann")...)
		}
		s.empty(40 * time.Second)
		if ids, calls := web.total(); ids != events || calls != events {
			t.Errorf("%d ids in %d calls, want %d", ids, calls, events)
		}
		if n.counts(t, "lastmile_notifier_breaks_total")[""] == 0 {
			t.Error("no connection was lost")
		}
		if text := n.log.String(); strings.Contains(text, `"n":`) {
			t.Error("a payload is in the log")
		}
	})
}

// Redis frozen for longer than its clients wait, and restarted empty: the notifier is
// not ready, then goes on by itself, with the group made again.
func TestNotifier_RedisFrozenAndEmpty(t *testing.T) {
	t.Parallel()
	r := testkit.OwnRedis(t)
	s, web := newStand(t, r), newReceiver(t, nil)
	n := s.notifier(quickNotifier("n"), web.sink())
	v := envelope(t, 1)
	s.hand(v, time.Now(), noLog("ann")...)
	s.empty(10 * time.Second)
	r.Freeze(t)
	eventually(t, 30*time.Second, "it is not ready", func() bool { return n.Ready() != nil })
	r.Thaw(t)
	eventually(t, 30*time.Second, "it is ready again", func() bool { return n.Ready() == nil })
	r.Restart(t) // and nothing was kept
	w := envelope(t, 2)
	eventually(t, 10*time.Second, "redis answers", func() bool { return s.rdb.Ping(t.Context()).Err() == nil })
	s.hand(w, time.Now(), noLog("ann")...)
	s.empty(20 * time.Second)
	if web.got(v, "ann") != 1 || web.got(w, "ann") != 1 {
		t.Errorf("taken: %v", web.taken)
	}
}

// The group is destroyed under the notifier: it is made again at the first entry.
func TestNotifier_GroupIsMadeAgain(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, r *testkit.Redis) {
		s, web := newStand(t, r), newReceiver(t, nil)
		n := s.notifier(quickNotifier("n"), web.sink())
		eventually(t, 10*time.Second, "it is ready", func() bool { return n.Ready() == nil })
		s.rdb.XGroupDestroy(t.Context(), inbox.Notifications, inbox.NotificationGroup)
		v := envelope(t, 1)
		s.hand(v, time.Now(), noLog("ann")...)
		s.empty(15 * time.Second)
		if web.got(v, "ann") != 1 {
			t.Errorf("taken: %v", web.taken)
		}
	})
}
