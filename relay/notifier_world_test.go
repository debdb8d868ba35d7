package relay_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
	"github.com/lastmile-gateway/lastmile/relay"
)

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// stand is a Redis with a notification stream.
type stand struct {
	t       testing.TB
	redis   *testkit.Redis
	rdb     redis.UniversalClient
	streams *inbox.Streams
	reg     *registry.Registry
}

func newStand(t testing.TB, s *testkit.Redis) *stand {
	t.Helper()
	rdb := s.Client(t)
	return &stand{t: t, redis: s, rdb: rdb, streams: inbox.New(rdb, inbox.Config{}), reg: registry.New(rdb, registry.Config{})}
}

// quickNotifier has short paces. What is held goes to others after three seconds.
func quickNotifier(name string) relay.NotifierConfig {
	return relay.NotifierConfig{
		Name: name, Grace: 50 * time.Millisecond,
		BackoffFirst: 20 * time.Millisecond, BackoffMost: 200 * time.Millisecond, SendTimeout: 5 * time.Second,
		ClaimIdle: 3 * time.Second, Renew: 300 * time.Millisecond, WaitEvery: 100 * time.Millisecond,
	}
}

// hastyNotifier takes over after a second: for tests where one lives at a time.
func hastyNotifier(name string) relay.NotifierConfig {
	cfg := quickNotifier(name)
	cfg.ClaimIdle, cfg.Renew = time.Second, 200*time.Millisecond
	return cfg
}

type runningNotifier struct {
	*relay.Notifier
	stop    func()
	log     *logBuffer
	metrics *prometheus.Registry
}

// notifier starts one; with may change it before.
func (s *stand) notifier(cfg relay.NotifierConfig, sink relay.Sink, with ...func(*relay.Notifier)) *runningNotifier {
	s.t.Helper()
	return s.notifierAt(s.redis.Server(), cfg, sink, with...)
}

func (s *stand) notifierAt(server *redisconn.Server, cfg relay.NotifierConfig, sink relay.Sink, with ...func(*relay.Notifier)) *runningNotifier {
	s.t.Helper()
	log, metrics := &logBuffer{}, prometheus.NewRegistry()
	cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.Metrics = metrics
	n, err := relay.NewNotifier(cfg, server, sink)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range with {
		f(n)
	}
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("log of notifier %s:\n%s", cfg.Name, log)
		}
	})
	return &runningNotifier{Notifier: n, stop: background(s.t, n.Run), log: log, metrics: metrics}
}

// outcomes are the pairs done, by outcome.
func (n *runningNotifier) outcomes(t testing.TB) map[string]int {
	return n.counts(t, "lastmile_notifier_pairs_total")
}

func (n *runningNotifier) counts(t testing.TB, name string) map[string]int {
	t.Helper()
	families, err := n.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]int)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			label := ""
			if len(m.GetLabel()) > 0 {
				label = m.GetLabel()[0].GetValue()
			}
			all[label] = int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
		}
	}
	return all
}

// envelope makes the n-th event.
func envelope(t testing.TB, n int, change ...func(*protocol.Event)) *protocol.Envelope {
	t.Helper()
	e := event(n, "somebody")
	e.Time = time.Now()
	for _, c := range change {
		c(e)
	}
	e.Prepare()
	v, err := protocol.NewEnvelope(e)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// noLog are pairs of users without a log.
func noLog(users ...protocol.UserID) []protocol.Pair {
	var all []protocol.Pair
	for _, u := range users {
		all = append(all, protocol.Pair{User: u})
	}
	return all
}

// hand hands pairs over for notification; the answer is the entry's id.
func (s *stand) hand(v *protocol.Envelope, at time.Time, pairs ...protocol.Pair) string {
	s.t.Helper()
	p := s.rdb.Pipeline()
	cmds := inbox.QueueNotification(s.t.Context(), p, inbox.Notification{
		Item: protocol.Item{Event: v, Pairs: pairs}, Reason: inbox.Offline, At: at,
	})
	if _, err := p.Exec(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return cmds[0].Val()
}

// readAs takes all that is unread, as a notifier that is dead by now.
func (s *stand) readAs(consumer string) {
	s.t.Helper()
	if err := s.streams.MakeNotifications(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.streams.ReadNotifications(s.t.Context(), s.rdb, consumer, 1000, 0); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stand) mark(v *protocol.Envelope, u protocol.UserID) inbox.Mark {
	s.t.Helper()
	m, err := s.streams.LookMark(context.Background(), v.ID, u)
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

func (s *stand) take(v *protocol.Envelope, u protocol.UserID, entry string) {
	s.t.Helper()
	if m, err := s.streams.TakeMark(s.t.Context(), v.ID, u, entry, inbox.Mark{}, time.Hour); err != nil || m.Entry != entry {
		s.t.Fatalf("mark %v, %v", m, err)
	}
}

// empty waits until every entry is settled.
func (s *stand) empty(within time.Duration) {
	s.t.Helper()
	eventually(s.t, within, "every entry is settled", func() bool {
		n, err := s.rdb.XLen(context.Background(), inbox.Notifications).Result()
		return err == nil && n == 0
	})
	if p, err := s.rdb.XPending(context.Background(), inbox.Notifications, inbox.NotificationGroup).Result(); err == nil && p.Count != 0 {
		s.t.Errorf("%d entries are pending", p.Count)
	}
}

// connect connects a user and routes events into his log; seqs are 1, 2, …
func (s *stand) connect(u protocol.UserID, events ...*protocol.Envelope) registry.Connected {
	s.t.Helper()
	at := registry.Location{Field: registry.Field{Instance: protocol.NewInstanceID("gone"), Session: protocol.NewSessionID()}, Since: time.Now()}
	c, err := s.reg.Connect(s.t.Context(), u, registry.ConnectRequest{At: at})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, v := range events {
		if _, err := s.reg.AppendCarefully(s.t.Context(), u, v.ID); err != nil {
			s.t.Fatal(err)
		}
	}
	return c
}

func (s *stand) acked(u protocol.UserID, epoch protocol.Epoch, seq protocol.Seq, v *protocol.Envelope) {
	s.t.Helper()
	if err := s.reg.Acked(s.t.Context(), u, protocol.Position{Epoch: epoch, Seq: seq, ID: v.ID}); err != nil {
		s.t.Fatal(err)
	}
}

// receiver is a webhook's other end. It checks every signature.
type receiver struct {
	t   testing.TB
	url string

	// answer decides about the nth call, from 1; nil: 200
	answer func(n int, id string, w http.ResponseWriter)

	mu     sync.Mutex
	calls  int
	all    map[string]int // calls by webhook id
	taken  map[string]int // those answered with 2xx
	bodies map[string][]byte
}

func newReceiver(t testing.TB, answer func(n int, id string, w http.ResponseWriter)) *receiver {
	t.Helper()
	r := &receiver{t: t, answer: answer, all: map[string]int{}, taken: map[string]int{}, bodies: map[string][]byte{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	id := q.Header.Get("webhook-id")
	r.check(q, id, body)
	r.mu.Lock()
	r.calls++
	n := r.calls
	r.all[id]++
	r.bodies[id] = body
	r.mu.Unlock()
	s := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	if r.answer != nil {
		r.answer(n, id, s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.status/100 == 2 {
		r.taken[id]++
	}
}

func (r *receiver) check(q *http.Request, id string, body []byte) {
	key, _ := base64.StdEncoding.DecodeString(webhookSecret[len("whsec_"):])
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, q.Header.Get("webhook-timestamp"), body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); q.Header.Get("webhook-signature") != want {
		r.t.Errorf("signature of %s is %s", id, q.Header.Get("webhook-signature"))
	}
	if q.Method != http.MethodPost || q.Header.Get("Content-Type") != "application/json" || !json.Valid(body) {
		r.t.Errorf("%s %s: %s", q.Method, q.Header.Get("Content-Type"), body)
	}
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (s *statusWriter) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// sink is a webhook to the receiver.
func (r *receiver) sink() relay.Sink {
	w, err := relay.NewWebhook(relay.WebhookConfig{URL: r.url, Secret: webhookSecret})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = w.Close() })
	return w
}

func (r *receiver) got(v *protocol.Envelope, u protocol.UserID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken[v.ID.String()+"."+string(u)]
}

func (r *receiver) total() (ids, calls int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.taken), r.calls
}

// doubled is the number of calls that were taken a second time.
func (r *receiver) doubled() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, times := range r.taken {
		n += times - 1
	}
	return n
}

// mortal is a sink of a process that may be killed.
type mortal struct {
	relay.Sink
	dead  *atomic.Bool
	after func(n relay.Notice) // the sink has taken it, and the notifier does not know yet
}

func (m mortal) Send(ctx context.Context, n relay.Notice) error {
	if m.dead.Load() {
		return errDead
	}
	err := m.Sink.Send(ctx, n)
	if m.after != nil {
		m.after(n)
	}
	if m.dead.Load() {
		return errDead
	}
	return err
}

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
