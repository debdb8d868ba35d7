package relay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
	"github.com/lastmile-gateway/lastmile/relay"
)

// world is one Redis, one outbox, and whoever works with them.
type world struct {
	t     testing.TB
	redis *testkit.Redis
	rdb   redis.UniversalClient
	store *outbox.Store
	mongo *testkit.Mongo
	reg   *registry.Registry
}

func newWorld(t testing.TB, s *testkit.Redis) *world {
	t.Helper()
	return newWorldOn(t, s, testkit.FirstMongo(t))
}

func newWorldOn(t testing.TB, s *testkit.Redis, mongo *testkit.Mongo) *world {
	t.Helper()
	rdb := s.Client(t)
	return &world{t: t, redis: s, rdb: rdb, store: openStore(t, mongo.URL), mongo: mongo,
		reg: registry.New(rdb, registry.Config{})}
}

// quick is a configuration with short leases.
func quick(name string) relay.Config {
	return relay.Config{
		Name: name, NotifyEnabled: true,
		Lease: 1500 * time.Millisecond, Renew: 200 * time.Millisecond, Look: 100 * time.Millisecond,
		Tick: 500 * time.Millisecond, Copy: 200 * time.Millisecond,
		RedisLoss: 1500 * time.Millisecond, InboxMaxAge: 30 * time.Second,
		ProbeEvery: 5 * time.Second,
	}
}

// runningRelay is a relay at work in this process.
type runningRelay struct {
	*relay.Relay
	t    testing.TB
	stop func()
	log  *logBuffer
}

// relay starts one; with may change it before.
func (w *world) relay(cfg relay.Config, with ...func(*relay.Relay)) *runningRelay {
	w.t.Helper()
	return w.relayOver(cfg, relay.Over(w.store), with...)
}

func (w *world) relayOver(cfg relay.Config, store relay.Outbox, with ...func(*relay.Relay)) *runningRelay {
	w.t.Helper()
	log := &logBuffer{}
	cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r, err := relay.NewOver(cfg, w.redis.Server(), store)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range with {
		f(r)
	}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("log of relay %s:\n%s", cfg.Name, log)
		}
	})
	return &runningRelay{Relay: r, t: w.t, stop: background(w.t, r.Run), log: log}
}

func (r *runningRelay) ready() *runningRelay {
	r.t.Helper()
	eventually(r.t, 15*time.Second, "relay is ready", func() bool { return r.Ready() == nil })
	return r
}

// held is how many partitions it holds.
func (r *runningRelay) held() int {
	n := 0
	for _, p := range r.Status().Partitions {
		if p.State == "running" {
			n++
		}
	}
	return n
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// instance is a socket server as far as Redis knows.
type instance struct {
	w       *world
	id      protocol.InstanceID
	streams *inbox.Streams
	got     []delivery // what was read, in the order of the inbox
}

// delivery is one pair out of an inbox or a notification.
type delivery struct {
	ID   protocol.EventID
	N    int // of the test's own data
	Pair protocol.Pair
}

// instance registers one, with a lease that outlives the test.
func (w *world) instance(name string) *instance {
	w.t.Helper()
	ctx := context.Background()
	id, _, err := heartbeat.New(w.rdb, heartbeat.SocketInstances, heartbeat.Config{Lease: time.Hour}).Register(ctx, name)
	if err != nil {
		w.t.Fatal(err)
	}
	i := &instance{w: w, id: id, streams: inbox.New(w.rdb, inbox.Config{})}
	if err := i.streams.Make(ctx, id); err != nil {
		w.t.Fatal(err)
	}
	return i
}

// connect connects users here.
func (i *instance) connect(users ...protocol.UserID) {
	i.w.t.Helper()
	for _, u := range users {
		at := registry.Location{Field: registry.Field{Instance: i.id, Session: protocol.NewSessionID()}, Since: time.Now()}
		if _, err := i.w.reg.Connect(context.Background(), u, registry.ConnectRequest{At: at}); err != nil {
			i.w.t.Fatal(err)
		}
	}
}

// read reads what the inbox holds now, and settles it.
func (i *instance) read() []delivery {
	i.w.t.Helper()
	ctx := context.Background()
	for {
		raws, err := i.streams.Read(ctx, i.w.rdb, i.id, 100, 0)
		if err != nil || len(raws) == 0 {
			return i.got // Redis may be restarting: whoever waits asks again
		}
		for _, raw := range raws {
			e, err := inbox.Decode(raw)
			if err != nil {
				i.w.t.Fatal(err)
			}
			for _, item := range e.Batch.Items {
				i.got = append(i.got, deliveries(i.w.t, item)...)
			}
			_ = i.streams.Settle(ctx, i.id, raw.ID) // else it stays pending, and is not read again
		}
	}
}

func deliveries(t testing.TB, item protocol.Item) []delivery {
	t.Helper()
	var body struct{ Data struct{ N int } }
	if err := json.Unmarshal(item.Event.Body, &body); err != nil {
		t.Fatalf("body %s: %v", item.Event.Body, err)
	}
	var all []delivery
	for _, p := range item.Pairs {
		all = append(all, delivery{ID: item.Event.ID, N: body.Data.N, Pair: p})
	}
	return all
}

// firsts leaves out what was there before: of each user, in order of first sight.
func firsts(got []delivery) map[protocol.UserID][]delivery {
	type key struct {
		id   protocol.EventID
		user protocol.UserID
	}
	seen := make(map[key]bool)
	first := make(map[protocol.UserID][]delivery)
	for _, d := range got {
		if k := (key{d.ID, d.Pair.User}); !seen[k] {
			seen[k] = true
			first[d.Pair.User] = append(first[d.Pair.User], d)
		}
	}
	return first
}

// await reads until the user has n different events, and answers them.
func (i *instance) await(within time.Duration, user protocol.UserID, n int) []delivery {
	i.w.t.Helper()
	eventually(i.w.t, within, fmt.Sprintf("%d events for %s", n, user), func() bool {
		return len(firsts(i.read())[user]) >= n
	})
	return firsts(i.got)[user]
}

// notified answers all pairs in the notification stream.
func (w *world) notified() []delivery {
	w.t.Helper()
	entries, err := w.rdb.XRange(context.Background(), inbox.Notifications, "-", "+").Result()
	if err != nil {
		w.t.Fatal(err)
	}
	var all []delivery
	for _, e := range entries {
		fields := make(map[string]string)
		for k, v := range e.Values {
			fields[k] = v.(string)
		}
		n, err := inbox.DecodeNotification(inbox.Raw{ID: e.ID, Fields: fields})
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, deliveries(w.t, n.Item)...)
	}
	return all
}

// event makes the n-th event for some users.
func event(n int, to ...protocol.UserID) *protocol.Event {
	return &protocol.Event{ID: protocol.NewEventID(), To: to, Type: "test.event", Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))}
}

func (w *world) publish(events ...*protocol.Event) {
	w.t.Helper()
	for _, e := range events {
		if err := w.store.Publish(context.Background(), e); err != nil {
			w.t.Fatal(err)
		}
	}
}

// publishTogether commits them in one transaction.
func (w *world) publishTogether(events ...*protocol.Event) {
	w.t.Helper()
	if err := w.store.Publish(context.Background(), events...); err != nil {
		w.t.Fatal(err)
	}
}

func users(n int) []protocol.UserID {
	all := make([]protocol.UserID, n)
	for i := range all {
		all[i] = protocol.UserID(fmt.Sprintf("user%03d", i))
	}
	return all
}

// checkSeqs says that seqs are contiguous from 1 in one epoch, and in the order of n.
func checkSeqs(t testing.TB, got []delivery) {
	t.Helper()
	for i, d := range got {
		if d.Pair.Epoch != got[0].Pair.Epoch || d.Pair.Seq != protocol.Seq(i+1) {
			t.Fatalf("event %d of %s: seq %d of epoch %s, want %d of %s", d.N, d.Pair.User, d.Pair.Seq, d.Pair.Epoch, i+1, got[0].Pair.Epoch)
		}
	}
}

func checkOrder(t testing.TB, got []delivery, from, to int) {
	t.Helper()
	if len(got) != to-from+1 {
		t.Fatalf("%d events, want %d to %d", len(got), from, to)
	}
	for i, d := range got {
		if d.N != from+i {
			t.Fatalf("event %d at place %d, want %d", d.N, i, from+i)
		}
	}
}

func badNotification() *redis.XAddArgs {
	return &redis.XAddArgs{Stream: inbox.Notifications, Values: []any{"v", "1", "b", "nonsense"}}
}
