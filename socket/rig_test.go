package socket_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
	"github.com/lastmile-gateway/lastmile/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret   = "a secret of thirty-two characters"
	apiKey   = "an API key of some length"
	patience = 10 * time.Second
)

// rig is a Redis, an outbox that is a map, and the relay's part, done by hand.
type rig struct {
	t      *testing.T
	redis  *testkit.Redis
	rdb    redis.UniversalClient
	reg    *registry.Registry
	leases *heartbeat.Leases
	inbox  *inbox.Streams
	store  *memory
}

func newRig(t *testing.T, r *testkit.Redis) *rig {
	rdb := r.Client(t)
	return &rig{
		t: t, redis: r, rdb: rdb, reg: registry.New(rdb, registry.Config{}),
		leases: heartbeat.New(rdb, heartbeat.SocketInstances, heartbeat.Config{}),
		inbox:  inbox.New(rdb, inbox.Config{}), store: &memory{docs: map[protocol.EventID]*protocol.Envelope{}},
	}
}

func each(t *testing.T, run func(t *testing.T, r *rig)) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) { run(t, newRig(t, s)) })
}

// memory is an outbox.
type memory struct {
	mu    sync.Mutex
	docs  map[protocol.EventID]*protocol.Envelope
	fail  error
	block chan struct{} // Publish waits for it
}

func (m *memory) set(fail error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = fail
}

func (m *memory) Fetch(_ context.Context, ids ...protocol.EventID) (map[protocol.EventID]*protocol.Envelope, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[protocol.EventID]*protocol.Envelope{}
	for _, id := range ids {
		if d := m.docs[id]; d != nil {
			found[id] = d
		}
	}
	return found, m.fail
}

func (m *memory) Publish(ctx context.Context, events ...*protocol.Event) error {
	m.mu.Lock()
	block, fail := m.block, m.fail
	m.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if fail != nil {
		return fail
	}
	for _, e := range events {
		e.Prepare()
		m.put(e)
	}
	return nil
}

func (m *memory) put(e *protocol.Event) *protocol.Envelope {
	env, err := protocol.NewEnvelope(e)
	if err != nil {
		panic(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.docs[env.ID] = env
	return env
}

func (m *memory) Remember(*protocol.Envelope) {}

// node is a running server.
type node struct {
	*socket.Server
	t    *testing.T
	http *httptest.Server
	stop context.CancelFunc
	done chan error
}

type tweak func(*socket.Config)

func (r *rig) start(name string, tweaks ...tweak) *node {
	r.t.Helper()
	return r.startAt(r.redis.Server(), name, tweaks...)
}

// startOn is start with another outbox.
func (r *rig) startOn(store socket.Events, name string) *node {
	r.t.Helper()
	return r.startWith(r.redis.Server(), store, name)
}

func (r *rig) startAt(where *redisconn.Server, name string, tweaks ...tweak) *node {
	r.t.Helper()
	return r.startWith(where, r.store, name, tweaks...)
}

func (r *rig) startWith(where *redisconn.Server, store socket.Events, name string, tweaks ...tweak) *node {
	r.t.Helper()
	cfg := socket.Config{
		Name: name, TokenSecret: []byte(secret), APIKeys: []string{apiKey}, NotifyEnabled: true, DrainWindow: 200 * time.Millisecond,
		BeatInterval: 200 * time.Millisecond, Lease: 2 * time.Second,
	}
	for _, tw := range tweaks {
		tw(&cfg)
	}
	srv, err := socket.NewWith(cfg, where, store)
	if err != nil {
		r.t.Fatal(err)
	}
	n := &node{Server: srv, t: r.t, http: httptest.NewServer(srv.Handler()), done: make(chan error, 1)}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	go func() { n.done <- srv.Run(ctx) }()
	r.t.Cleanup(func() {
		stop()
		n.wait()
		n.http.Close()
	})
	return n
}

// ready waits until the server takes sessions.
func (n *node) ready() *node {
	n.t.Helper()
	testkit.Eventually(n.t, patience, "server is ready", func() bool { return n.Ready() == nil })
	return n
}

// wait waits for Run and returns what it returned.
func (n *node) wait() error {
	select {
	case err := <-n.done:
		n.done <- err
		return err
	case <-time.After(3 * patience):
		return errors.New("Run does not return")
	}
}

func (n *node) url() string { return "ws" + n.http.URL[len("http"):] + "/v1/ws" }

// token is a good one for an hour, unless changed.
func token(user string, change ...func(jwt.MapClaims)) string {
	c := jwt.MapClaims{"sub": user, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	for _, f := range change {
		f(c)
	}
	s, err := jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString([]byte(secret))
	if err != nil {
		panic(err)
	}
	return s
}

// event puts an event into the outbox, as an application does.
func (r *rig) event(name string, users ...protocol.UserID) *protocol.Envelope {
	e := &protocol.Event{To: users, Type: "test", Data: fmt.Appendf(nil, `{"name":%q}`, name)}
	e.Prepare()
	return r.store.put(e)
}

// publish puts an event into the outbox and routes it, as an application and a relay do.
func (r *rig) publish(name string, users ...protocol.UserID) *protocol.Envelope {
	r.t.Helper()
	env := r.event(name, users...)
	r.route(env, users...)
	return env
}

// append is the first stage of routing.
func (r *rig) append(env *protocol.Envelope, users ...protocol.UserID) []registry.Routed {
	r.t.Helper()
	p := r.rdb.Pipeline()
	cmds := make([]*registry.RouteCmd, len(users))
	for i, u := range users {
		cmds[i] = r.reg.QueueAppend(r.t.Context(), p, u, env.ID)
	}
	if _, err := p.Exec(r.t.Context()); err != nil && !errors.Is(err, redis.Nil) {
		r.t.Fatalf("append: %v", err)
	}
	routed := make([]registry.Routed, len(users))
	for i, c := range cmds {
		var err error
		if routed[i], err = c.Result(); err != nil {
			r.t.Fatalf("append: %v", err)
		}
	}
	return routed
}

// route is both stages; it returns how many users had no location.
func (r *rig) route(env *protocol.Envelope, users ...protocol.UserID) (offline int) {
	r.t.Helper()
	pairs := map[protocol.InstanceID][]protocol.Pair{}
	for i, routed := range r.append(env, users...) {
		pair := protocol.Pair{User: users[i], Epoch: routed.Epoch, Seq: routed.Seq}
		seen := map[protocol.InstanceID]bool{}
		for _, at := range routed.Locations {
			if !seen[at.Instance] {
				seen[at.Instance] = true
				pairs[at.Instance] = append(pairs[at.Instance], pair)
			}
		}
		if len(seen) == 0 {
			offline++
		}
	}
	for id, ps := range pairs {
		r.enter(id, inbox.Entry{Batch: protocol.Batch{Items: []protocol.Item{{Event: env, Pairs: ps}}}})
	}
	return offline
}

func (r *rig) enter(id protocol.InstanceID, e inbox.Entry) string {
	r.t.Helper()
	entry, err := r.inbox.Append(r.t.Context(), id, e)
	if err != nil && !errors.Is(err, inbox.ErrGone) {
		r.t.Fatalf("append to inbox: %v", err)
	}
	return entry
}

// enterAs is enter under a chosen entry id; it makes the stream where there is none.
func (r *rig) enterAs(id protocol.InstanceID, entry string, e inbox.Entry) {
	r.t.Helper()
	args := inbox.QueueAppend(r.t.Context(), r.rdb.Pipeline(), id, e).Args()
	values := args[len(args)-6:] // v, n, b
	if err := r.rdb.XAdd(r.t.Context(), &redis.XAddArgs{Stream: inbox.Key(id), ID: entry, Values: values}).Err(); err != nil {
		r.t.Fatal(err)
	}
}

// settled waits until the inbox is empty, pending ones too.
func (r *rig) settled(id protocol.InstanceID) {
	r.t.Helper()
	testkit.Eventually(r.t, patience, "inbox "+string(id)+" is empty", func() bool {
		b, err := r.inbox.Backlog(r.t.Context(), id)
		return err == nil && b.Length == 0 && b.Pending == 0
	})
}

// notified is the users and event ids in the notification stream.
func (r *rig) notified() map[string]int {
	r.t.Helper()
	all := map[string]int{}
	msgs, err := r.rdb.XRange(r.t.Context(), inbox.Notifications, "-", "+").Result()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, m := range msgs {
		fields := map[string]string{}
		for k, v := range m.Values {
			fields[k] = v.(string)
		}
		n, err := inbox.DecodeNotification(inbox.Raw{ID: m.ID, Fields: fields})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, p := range n.Item.Pairs {
			all[string(p.User)+" "+n.Item.Event.ID.String()]++
		}
	}
	return all
}

func (r *rig) waitNotified(user protocol.UserID, env *protocol.Envelope) {
	r.t.Helper()
	testkit.Eventually(r.t, patience, "notified", func() bool { return r.notified()[string(user)+" "+env.ID.String()] > 0 })
}

func post(t *testing.T, n *node, key, body string) *http.Response {
	t.Helper()
	return postReader(t, n, key, newReader(body))
}

// proxied is a Redis behind a proxy of the test's.
func (r *rig) proxied() (*redisconn.Server, *testkit.Proxy) {
	r.t.Helper()
	opts, err := redis.ParseURL(r.redis.URL)
	if err != nil {
		r.t.Fatal(err)
	}
	p := testkit.NewProxy(r.t, opts.Addr)
	host, port, _ := net.SplitHostPort(p.Addr())
	where, err := redisconn.Parse(fmt.Sprintf("redis://%s:%s/%d", host, port, opts.DB))
	if err != nil {
		r.t.Fatal(err)
	}
	return where, p
}
