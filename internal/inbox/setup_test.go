package inbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is a Redis of the test's own and what the package stands on.
type bundle struct {
	server  *testkit.Redis
	real    bool
	rdb     redis.UniversalClient
	streams *inbox.Streams
	reg     *registry.Registry
	leases  *heartbeat.Leases
	faults  *faults
}

// each runs a test on every Redis at hand.
func each(t *testing.T, run func(t *testing.T, b bundle)) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) { run(t, newBundle(t, s)) })
}

func newBundle(t testing.TB, s *testkit.Redis) bundle {
	f := &faults{}
	rdb := s.Server().Pool(4, nil)
	rdb.AddHook(f)
	t.Cleanup(func() { _ = rdb.Close() })
	return bundle{
		server: s, real: s.Real, rdb: rdb, faults: f,
		streams: inbox.New(rdb, inbox.Config{}),
		reg:     registry.New(rdb, registry.Config{}),
		leases:  heartbeat.New(rdb, heartbeat.SocketInstances, heartbeat.Config{}),
	}
}

// reader is a client of its own, and a signal each time a blocking read was sent.
func (b bundle) reader(t testing.TB) (redis.UniversalClient, <-chan struct{}) {
	sent := make(chan struct{}, 100)
	o, err := redis.ParseURL(b.server.URL)
	must(t, err)
	o.MaxRetries, o.PoolSize = -1, 1
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return watched{c, sent}, err
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb, sent
}

type watched struct {
	net.Conn
	sent chan<- struct{}
}

func (w watched) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	if bytes.Contains(b, []byte("xreadgroup")) {
		w.sent <- struct{}{}
	}
	return n, err
}

// faults wraps a client's commands and pipelines.
type faults struct {
	calls   atomic.Int32 // so far
	fail    atomic.Int32 // the call that breaks; 0: none
	done    atomic.Bool  // the broken call reaches Redis, and only its reply is lost
	failing atomic.Int32 // calls that broke
}

var errFault = errors.New("fault: connection broke")

func (f *faults) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *faults) breaks() bool {
	if n := f.calls.Add(1); n != f.fail.Load() {
		return false
	}
	f.failing.Add(1)
	return true
}

func (f *faults) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		breaks := f.breaks()
		if breaks && !f.done.Load() {
			cmd.SetErr(errFault)
			return errFault
		}
		err := next(ctx, cmd)
		if breaks {
			cmd.SetErr(errFault)
			return errFault
		}
		return err
	}
}

func (f *faults) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		breaks := f.breaks()
		var err error
		if !breaks || f.done.Load() {
			err = next(ctx, cmds)
		}
		if breaks {
			for _, cmd := range cmds {
				cmd.SetErr(errFault)
			}
			return errFault
		}
		return err
	}
}

// arm breaks the nth call from now on.
func (f *faults) arm(n int32, done bool) {
	f.calls.Store(0)
	f.failing.Store(0)
	f.done.Store(done)
	f.fail.Store(n)
}

// instance is a socket server with a running lease and an inbox.
func (b bundle) instance(t testing.TB, name string) protocol.InstanceID {
	t.Helper()
	id, _, err := b.leases.Register(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.streams.Make(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

// connect registers a session of the user.
func (b bundle) connect(t testing.TB, u protocol.UserID, id protocol.InstanceID) registry.Field {
	t.Helper()
	f := registry.Field{Instance: id, Session: protocol.NewSessionID()}
	if _, err := b.reg.Connect(t.Context(), u, registry.ConnectRequest{At: registry.Location{Field: f, Since: time.Now()}}); err != nil {
		t.Fatal(err)
	}
	return f
}

// fields are the sessions that the registry knows of the user.
func (b bundle) fields(t testing.TB, u protocol.UserID) []registry.Field {
	t.Helper()
	user, err := b.reg.Lookup(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	var fs []registry.Field
	for _, l := range user.Locations {
		fs = append(fs, l.Field)
	}
	return fs
}

func envelope(t testing.TB, change ...func(*protocol.Event)) *protocol.Envelope {
	t.Helper()
	e := protocol.Event{To: []protocol.UserID{"x"}, Type: "test.event", Data: json.RawMessage(`{"n":1}`)}
	for _, c := range change {
		c(&e)
	}
	e.Prepare()
	v, err := protocol.NewEnvelope(&e)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

var epoch = protocol.NewEpoch()

// pair is a place in u's log; 0: none, and then no epoch either.
func pair(u protocol.UserID, seq int) protocol.Pair {
	if seq == 0 {
		return protocol.Pair{User: u}
	}
	return protocol.Pair{User: u, Epoch: epoch, Seq: protocol.Seq(seq)}
}

func batch(v *protocol.Envelope, pairs ...protocol.Pair) protocol.Batch {
	return protocol.Batch{Items: []protocol.Item{{Event: v, Pairs: pairs}}}
}

func (b bundle) append(t testing.TB, id protocol.InstanceID, e inbox.Entry) string {
	t.Helper()
	entry, err := b.streams.Append(t.Context(), id, e)
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

// read takes what is unread in an inbox.
func (b bundle) read(t testing.TB, id protocol.InstanceID) []inbox.Raw {
	t.Helper()
	raws, err := b.streams.Read(t.Context(), b.rdb, id, 10_000, 0)
	if err != nil {
		t.Fatal(err)
	}
	return raws
}

func (b bundle) entries(t testing.TB, id protocol.InstanceID) []inbox.Entry {
	t.Helper()
	var es []inbox.Entry
	for _, raw := range b.read(t, id) {
		e, err := inbox.Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		es = append(es, e)
	}
	return es
}

// notifications are all there are, decoded.
func (b bundle) notifications(t testing.TB) []inbox.Notification {
	t.Helper()
	ms, err := b.rdb.XRange(t.Context(), inbox.Notifications, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	var ns []inbox.Notification
	for _, m := range ms {
		raw := inbox.Raw{ID: m.ID, Fields: map[string]string{}}
		for k, v := range m.Values {
			raw.Fields[k] = fmt.Sprint(v)
		}
		n, err := inbox.DecodeNotification(raw)
		if err != nil {
			t.Fatal(err)
		}
		ns = append(ns, n)
	}
	return ns
}

// is fails the test unless err is what was expected.
func is(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
