package registrytest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

// Run runs the suite. newRedis gives a client, and closes it when the test that
// it was given ends.
func Run(t *testing.T, newRedis func(t *testing.T) redis.UniversalClient) {
	for _, group := range []map[string]func(*env){connects, routes, logs, sessions, histories} {
		for name, test := range group {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(setup(t, newRedis(t)))
			})
		}
	}
}

// env is what a test works with: a registry, and a user whom nobody else uses.
type env struct {
	*testing.T
	rdb  redis.UniversalClient
	reg  *registry.Registry
	user protocol.UserID
}

func setup(t *testing.T, rdb redis.UniversalClient) *env {
	e := &env{T: t, rdb: rdb, reg: registry.New(rdb, registry.Config{}), user: protocol.UserID("u-" + string(protocol.NewSessionID()))}
	if err := e.reg.Load(t.Context(), rdb); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *env) ctx() context.Context { return e.Context() }

// with has the same server and user, and another configuration.
func (e *env) with(cfg registry.Config) *env {
	other := *e
	other.reg = registry.New(e.rdb, cfg)
	return &other
}

func (e *env) key(what string) string { return "user:{" + string(e.user) + "}:" + what }

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// location is a new session on the instance called name.
func location(name string) registry.Location {
	return registry.Location{
		Field: registry.Field{Instance: protocol.NewInstanceID(name), Session: protocol.NewSessionID()},
		Since: time.UnixMilli(1_700_000_000_123), Device: "phone",
	}
}

func (e *env) connect(req registry.ConnectRequest) registry.Connected {
	e.Helper()
	if req.At.IsZero() {
		req.At = location("A")
	}
	c, err := e.reg.Connect(e.ctx(), e.user, req)
	e.must(err)
	return c
}

func (e *env) resume(p protocol.Position) registry.Connected {
	e.Helper()
	return e.connect(registry.ConnectRequest{Resume: &p})
}

// append appends new ids plainly, and says where they went.
func (e *env) append(n int) (ids []protocol.EventID, seqs []protocol.Seq) {
	e.Helper()
	p := e.rdb.Pipeline()
	cmds := make([]*registry.RouteCmd, n)
	for i := range cmds {
		ids = append(ids, protocol.NewEventID())
		cmds[i] = e.reg.QueueAppend(e.ctx(), p, e.user, ids[i])
	}
	_, err := p.Exec(e.ctx())
	e.must(err)
	for _, c := range cmds {
		r, err := c.Result()
		e.must(err)
		seqs = append(seqs, r.Seq)
	}
	return ids, seqs
}

func (e *env) careful(id protocol.EventID) registry.Routed {
	e.Helper()
	r, err := e.reg.AppendCarefully(e.ctx(), e.user, id)
	e.must(err)
	return r
}

func (e *env) trim() {
	e.Helper()
	p := e.rdb.Pipeline()
	e.reg.QueueTrim(e.ctx(), p, e.user)
	_, err := p.Exec(e.ctx())
	e.must(err)
}

func (e *env) lookup() registry.User {
	e.Helper()
	u, err := e.reg.Lookup(e.ctx(), e.user)
	e.must(err)
	return u
}

// dump is the state of the user's two keys, as an old dump of Redis holds it.
type dump struct {
	hash map[string]string
	list []string
}

func (e *env) dump() dump {
	e.Helper()
	h, err := e.rdb.HGetAll(e.ctx(), e.key("at")).Result()
	e.must(err)
	l, err := e.rdb.LRange(e.ctx(), e.key("log"), 0, -1).Result()
	e.must(err)
	return dump{h, l}
}

// restore is a restart of Redis from d.
func (e *env) restore(d dump) {
	e.Helper()
	_, err := e.rdb.TxPipelined(e.ctx(), func(p redis.Pipeliner) error {
		p.Del(e.ctx(), e.key("at"), e.key("log"))
		for name, value := range d.hash {
			p.HSet(e.ctx(), e.key("at"), name, value)
		}
		for _, id := range d.list {
			p.RPush(e.ctx(), e.key("log"), id)
		}
		return nil
	})
	e.must(err)
}

func (e *env) fieldsAre(got []registry.Location, want ...registry.Location) {
	e.Helper()
	names := func(ls []registry.Location) string {
		var s []string
		for _, l := range ls {
			s = append(s, l.String())
		}
		return strings.Join(s, " ")
	}
	if len(got) != len(want) {
		e.Fatalf("locations are %q, want %q", names(got), names(want))
	}
	for _, w := range want {
		found := false
		for _, g := range got {
			found = found || g == w
		}
		if !found {
			e.Errorf("locations are %q, want %q among them", names(got), w)
		}
	}
}

func equal[T comparable](e *env, what string, got, want T) {
	e.Helper()
	if got != want {
		e.Errorf("%s is %v, want %v", what, got, want)
	}
}
