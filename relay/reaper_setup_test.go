package relay_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
	"github.com/lastmile-gateway/lastmile/relay"
)

// morgue is a Redis with socket servers, dead ones among them, and no relay.
type morgue struct {
	*world
	leases  *heartbeat.Leases
	streams *inbox.Streams
}

func newMorgue(t testing.TB, s *testkit.Redis) *morgue {
	t.Helper()
	rdb := s.Client(t)
	return &morgue{
		world:   &world{t: t, redis: s, rdb: rdb, reg: registry.New(rdb, registry.Config{})},
		leases:  heartbeat.New(rdb, heartbeat.SocketInstances, heartbeat.Config{}),
		streams: inbox.New(rdb, inbox.Config{}),
	}
}

// eachMorgue runs a test on every Redis at hand.
func eachMorgue(t *testing.T, run func(t *testing.T, m *morgue)) {
	t.Helper()
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) { run(t, newMorgue(t, s)) })
}

// die ends an instance's lease, as if it had stopped beating.
func (m *morgue) die(i *instance) {
	m.t.Helper()
	if err := m.rdb.ZAdd(context.Background(), heartbeat.SocketInstances, redis.Z{Score: 1000, Member: string(i.id)}).Err(); err != nil {
		m.t.Fatal(err)
	}
}

// lease is an instance's as listed; without an id: none.
func (m *morgue) lease(id protocol.InstanceID) heartbeat.Lease {
	m.t.Helper()
	list, err := m.leases.List(context.Background())
	if err != nil {
		m.t.Fatal(err)
	}
	for _, l := range list {
		if l.ID == id {
			return l
		}
	}
	return heartbeat.Lease{}
}

// route puts an event for users into an inbox, with the seqs that their logs give.
func (m *morgue) route(i *instance, e *protocol.Event, users ...protocol.UserID) string {
	m.t.Helper()
	return m.add(i, inbox.Entry{Batch: m.batch(e, users...)})
}

func (m *morgue) batch(e *protocol.Event, users ...protocol.UserID) protocol.Batch {
	m.t.Helper()
	ctx := context.Background()
	e.To = users
	e.Prepare()
	env, err := protocol.NewEnvelope(e)
	if err != nil {
		m.t.Fatal(err)
	}
	item := protocol.Item{Event: env}
	for _, u := range users {
		routed, err := m.reg.AppendCarefully(ctx, u, e.ID)
		if err != nil {
			m.t.Fatal(err)
		}
		item.Pairs = append(item.Pairs, protocol.Pair{User: u, Epoch: routed.Epoch, Seq: routed.Seq})
	}
	return protocol.Batch{Items: []protocol.Item{item}}
}

func (m *morgue) add(i *instance, e inbox.Entry) string {
	m.t.Helper()
	id, err := m.streams.Append(context.Background(), i.id, e)
	if err != nil {
		m.t.Fatal(err)
	}
	return id
}

// take reads up to n entries as the instance itself, and leaves them pending.
func (m *morgue) take(i *instance, n int) []inbox.Raw {
	m.t.Helper()
	raws, err := m.streams.Read(context.Background(), m.rdb, i.id, n, 0)
	if err != nil || len(raws) != n {
		m.t.Fatalf("took %d entries, %v", len(raws), err)
	}
	return raws
}

// entries are those that an inbox holds, decoded.
func (m *morgue) entries(i *instance) []inbox.Entry {
	m.t.Helper()
	ms, err := m.rdb.XRange(context.Background(), inbox.Key(i.id), "-", "+").Result()
	if err != nil {
		m.t.Fatal(err)
	}
	var all []inbox.Entry
	for _, x := range ms {
		raw := inbox.Raw{ID: x.ID, Fields: map[string]string{}}
		for k, v := range x.Values {
			raw.Fields[k] = fmt.Sprint(v)
		}
		e, err := inbox.Decode(raw)
		if err != nil {
			m.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// held are the pairs in an inbox, in its order.
func (m *morgue) held(i *instance) []delivery {
	m.t.Helper()
	var all []delivery
	for _, e := range m.entries(i) {
		for _, item := range e.Batch.Items {
			all = append(all, deliveries(m.t, item)...)
		}
	}
	return all
}

// checkGone says that nothing of an instance is left.
func (m *morgue) checkGone(i *instance) {
	m.t.Helper()
	ctx := context.Background()
	n, err := m.rdb.Exists(ctx, inbox.Key(i.id), "socket:instance:"+string(i.id), relay.ReapKey(i.id)).Result()
	if err != nil || n != 0 {
		m.t.Errorf("%d keys of %s are left, %v", n, i.id, err)
	}
	if l := m.lease(i.id); l.ID != "" {
		m.t.Errorf("the lease of %s is left: %+v", i.id, l)
	}
}

// awaitReaped waits for somebody's reaper; its lock goes last.
func (m *morgue) awaitReaped(i *instance) {
	m.t.Helper()
	eventually(m.t, 20*time.Second, string(i.id)+" is reaped", func() bool {
		for _, r := range m.history() {
			if r.Instance == i.id {
				return m.rdb.Exists(context.Background(), relay.ReapKey(i.id)).Val() == 0
			}
		}
		return false
	})
	m.checkGone(i)
}

// history is what reapers did, the newest first.
func (m *morgue) history() []relay.Reaped {
	m.t.Helper()
	all, err := relay.ReadHistory(context.Background(), m.rdb, 1000)
	if err != nil {
		m.t.Fatal(err)
	}
	return all
}

// reaper is one of a relay of that name, over connections that have the hooks.
func (m *morgue) reaper(name string, hooks ...redis.Hook) *relay.Reaper {
	m.t.Helper()
	return m.reaperAt(m.redis.Server(), name, hooks...)
}

func (m *morgue) reaperAt(server *redisconn.Server, name string, hooks ...redis.Hook) *relay.Reaper {
	m.t.Helper()
	hooked := func(c redis.UniversalClient) redis.UniversalClient {
		for _, h := range hooks {
			c.AddHook(h)
		}
		return c
	}
	pool := hooked(server.Pool(2, nil))
	m.t.Cleanup(func() { _ = pool.Close() })
	dial := func(onDial func()) redis.UniversalClient { return hooked(server.Conn(onDial)) }
	return relay.NewReaper(quick(name), pool, dial, protocol.NewInstanceID(name), func() int64 { return 1 })
}

// reap empties an instance's inbox, however it stands with its lease.
func (m *morgue) reap(r *relay.Reaper, i *instance) {
	m.t.Helper()
	if err := r.Reap(context.Background(), m.lease(i.id)); err != nil {
		m.t.Fatal(err)
	}
}

// proxied is the Redis behind a proxy.
func (m *morgue) proxied() (*redisconn.Server, *testkit.Proxy) {
	m.t.Helper()
	u, err := url.Parse(m.redis.URL)
	if err != nil {
		m.t.Fatal(err)
	}
	p := testkit.NewProxy(m.t, u.Host)
	u.Host = p.Addr()
	server, err := redisconn.Parse(u.String())
	if err != nil {
		m.t.Fatal(err)
	}
	return server, p
}

// count counts pairs by event and user.
func count(ds []delivery) map[string]int {
	n := make(map[string]int)
	for _, d := range ds {
		n[fmt.Sprintf("%d of %s", d.N, d.Pair.User)]++
	}
	return n
}

// redisStep stands before every call to Redis, commands and pipelines alike.
type redisStep struct {
	// before is asked with the names of the commands; an error stands for the answer,
	// and nothing is sent.
	before func(names []string, cmds []redis.Cmder) error
	// after sees what was sent; an error stands for the answer.
	after func(names []string, cmds []redis.Cmder) error
}

func (s *redisStep) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *redisStep) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return s.around([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (s *redisStep) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return s.around(cmds, func() error { return next(ctx, cmds) })
	}
}

func (s *redisStep) around(cmds []redis.Cmder, send func() error) error {
	var names []string
	for _, c := range cmds {
		names = append(names, c.Name())
	}
	if s.before != nil {
		if err := s.before(names, cmds); err != nil {
			return failAll(cmds, err)
		}
	}
	err := send()
	if s.after != nil {
		if err := s.after(names, cmds); err != nil {
			return failAll(cmds, err)
		}
	}
	return err
}

func failAll(cmds []redis.Cmder, err error) error {
	for _, c := range cmds {
		c.SetErr(err)
	}
	return err
}

// reaperKilledAt is a process that is killed at its nth call to Redis: before it is sent, or
// when it has taken effect.
func reaperKilledAt(n int32, late bool) (*redisStep, func() bool) {
	var calls atomic.Int32
	var dead atomic.Bool
	s := &redisStep{
		before: func([]string, []redis.Cmder) error {
			if calls.Add(1) >= n && !late {
				dead.Store(true)
			}
			if dead.Load() {
				return errDead
			}
			return nil
		},
		after: func([]string, []redis.Cmder) error {
			if calls.Load() >= n && late {
				dead.Store(true)
				return errDead
			}
			return nil
		},
	}
	return s, dead.Load
}

// once answers true the first time.
func once() func() bool {
	var done atomic.Bool
	return func() bool { return !done.Swap(true) }
}

func isErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// beating keeps an instance's lease as a socket server does, until stop.
func (m *morgue) beating(name string, cfg heartbeat.Config) (i *instance, stop func()) {
	m.t.Helper()
	conn := m.redis.Server().Conn(nil)
	leases := heartbeat.New(conn, heartbeat.SocketInstances, cfg)
	id, value, err := leases.Register(context.Background(), name)
	if err != nil {
		m.t.Fatal(err)
	}
	i = &instance{w: m.world, id: id, streams: m.streams}
	if err := m.streams.Make(context.Background(), id); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = conn.Close() })
	return i, background(m.t, leases.Keep(id, value, nil, nil).Run)
}

// pace is that of quick.
func pace() heartbeat.Config {
	return heartbeat.Config{Lease: 1500 * time.Millisecond, Every: 200 * time.Millisecond}
}
