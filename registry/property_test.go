package registry_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

// Whatever is done in whatever order, restarts from older dumps and lost keys
// among it, the registry answers what the model answers.
func TestProperty_RegistryIsItsModel(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		rdb := resp2(t, s)
		rapid.Check(t, func(rt *rapid.T) {
			m := newMachine(rt, rdb)
			rt.Repeat(map[string]func(*rapid.T){
				"connect": m.connect, "append": m.append, "careful": m.careful, "trim": m.trim,
				"gap": m.gap, "holds": m.holds, "refresh": m.refresh, "acked": m.acked,
				"break": m.breakEpoch, "leave": m.leave, "find": m.find,
				"dump": m.dump, "restart older": m.restore, "lose": m.lose,
				"": m.check,
			})
		})
	})
}

// machine drives registry and model together. Few ids, fields and seqs, so that they meet.
type machine struct {
	rdb  redis.UniversalClient
	reg  *registry.Registry
	user protocol.UserID
	m    *model

	at     []registry.Field
	ids    []protocol.EventID
	epochs []protocol.Epoch // all there were
	dumped *model
	hash   map[string]string
	list   []string
}

func newMachine(t *rapid.T, rdb redis.UniversalClient) *machine {
	cfg := registry.Config{MaxLog: rapid.IntRange(2, 9).Draw(t, "maxLog"), BreakPause: -1}
	cfg.TrimLog = rapid.IntRange(1, cfg.MaxLog).Draw(t, "trimLog")
	pause := rapid.Bool().Draw(t, "pause")
	if pause {
		cfg.BreakPause = 0 // the default, far longer than a run
	}
	m := &machine{
		rdb: rdb, reg: registry.New(rdb, cfg), user: protocol.UserID("{%}" + protocol.NewSessionID()),
		m:      &model{maxLog: cfg.MaxLog, trimLog: cfg.TrimLog, pause: pause, fields: map[registry.Field]bool{}},
		epochs: []protocol.Epoch{protocol.NewEpoch()},
	}
	for range 4 {
		m.at = append(m.at, field())
		m.ids = append(m.ids, protocol.NewEventID(), protocol.NewEventID())
	}
	if err := m.reg.Load(t.Context(), rdb); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *machine) key(what string) string {
	return "user:{%7B%25%7D" + string(m.user[3:]) + "}:" + what
}

func (m *machine) anID(t *rapid.T) protocol.EventID { return rapid.SampledFrom(m.ids).Draw(t, "id") }

func (m *machine) aField(t *rapid.T) registry.Field { return rapid.SampledFrom(m.at).Draw(t, "field") }

// aPosition is often one that the log has or had, and sometimes none at all.
func (m *machine) aPosition(t *rapid.T) protocol.Position {
	p := protocol.Position{
		Epoch: rapid.SampledFrom(m.epochs).Draw(t, "epoch"),
		Seq:   protocol.Seq(rapid.IntRange(0, 12).Draw(t, "seq")),
	}
	if rapid.Bool().Draw(t, "likely") && m.m.known() {
		p.Epoch = m.m.epoch
		p.Seq = m.m.base + protocol.Seq(rapid.IntRange(-2, len(m.m.ids)).Draw(t, "offset"))
		p.Seq = max(p.Seq, 0)
	}
	if id, ok := m.m.at(p.Seq); ok && rapid.Bool().Draw(t, "its id") {
		p.ID = id
	} else if rapid.Bool().Draw(t, "an id") {
		p.ID = m.anID(t)
	}
	return p
}

// fresh is epoch if there was none like it before. Else it is one that nothing
// answers: a model that makes a new log now is wrong.
func (m *machine) fresh(t *rapid.T, epoch protocol.Epoch) protocol.Epoch {
	if epoch == "" || slices.Contains(m.epochs, epoch) {
		return "not new"
	}
	if _, err := protocol.ParseEpoch(string(epoch)); err != nil {
		t.Fatal(err)
	}
	m.epochs = append(m.epochs, epoch)
	return epoch
}

func (m *machine) connect(t *rapid.T) {
	req := registry.ConnectRequest{At: registry.Location{Field: m.aField(t)}, Limit: rapid.IntRange(0, 3).Draw(t, "limit")}
	if rapid.Bool().Draw(t, "resume") {
		p := m.aPosition(t)
		req.Resume = &p
	}
	if f := m.aField(t); rapid.Bool().Draw(t, "replaces") && f != req.At.Field {
		req.Replaces = f
	}
	got, err := m.reg.Connect(t.Context(), m.user, req)
	var full *registry.TooManySessionsError
	if errors.As(err, &full) {
		same(t, "full", true, m.m.full(req.At.Field, req.Replaces, req.Limit))
		return
	}
	noError(t, err)
	same(t, "full", false, m.m.full(req.At.Field, req.Replaces, req.Limit))
	same(t, "recovered", got.Recovered, m.m.connect(req.At.Field, req.Replaces, req.Resume, m.fresh(t, got.Epoch)))
	same(t, "epoch", got.Epoch, m.m.epoch)
	same(t, "base", got.Base, m.m.base)
	same(t, "ids", got.IDs, m.m.ids)
	same(t, "acked", got.Acked, m.m.acked)
	m.sameFields(t, got.Locations)
}

func (m *machine) append(t *rapid.T) {
	n := rapid.IntRange(1, 3).Draw(t, "n")
	p := m.rdb.Pipeline()
	cmds := make([]*registry.RouteCmd, n)
	want := make([]protocol.Seq, n)
	for i := range cmds {
		id := m.anID(t)
		cmds[i], want[i] = m.reg.QueueAppend(t.Context(), p, m.user, id), m.m.append(id)
	}
	_, err := p.Exec(t.Context())
	noError(t, err)
	for i, c := range cmds {
		m.sameRoute(t, c, want[i])
	}
	r, _ := cmds[n-1].Result()
	same(t, "trim", r.Trim, m.m.known() && len(m.m.ids) > m.m.maxLog)
}

func (m *machine) careful(t *rapid.T) {
	id := m.anID(t)
	p := m.rdb.Pipeline()
	c := m.reg.QueueAppendCarefully(t.Context(), p, m.user, id)
	_, err := p.Exec(t.Context())
	noError(t, err)
	m.sameRoute(t, c, m.m.careful(id))
}

func (m *machine) sameRoute(t *rapid.T, c *registry.RouteCmd, seq protocol.Seq) {
	r, err := c.Result()
	noError(t, err)
	same(t, "seq", r.Seq, seq)
	same(t, "epoch", r.Epoch, m.m.epoch)
	same(t, "acked", r.Acked, m.m.acked)
	m.sameFields(t, r.Locations)
}

func (m *machine) trim(t *rapid.T) {
	p := m.rdb.Pipeline()
	m.reg.QueueTrim(t.Context(), p, m.user)
	_, err := p.Exec(t.Context())
	noError(t, err)
	m.m.trim()
}

func (m *machine) gap(t *rapid.T) {
	p := m.aPosition(t)
	got, err := m.reg.Gap(t.Context(), m.user, p.Epoch, p.Seq, p.ID)
	if errors.Is(err, registry.ErrBreak) {
		same(t, "fits", false, m.m.fits(p))
		return
	}
	noError(t, err)
	same(t, "fits", true, m.m.fits(p))
	want := m.m.ids[p.Seq+1-m.m.base:]
	same(t, "length of the gap", len(got), len(want))
	for i := range got {
		same(t, "id in the gap", got[i], want[i])
	}
}

func (m *machine) holds(t *rapid.T) {
	p := m.aPosition(t)
	got, err := m.reg.Holds(t.Context(), m.user, p.Epoch, p.Seq, p.ID)
	noError(t, err)
	same(t, "holding", got, m.m.holding(p))
}

func (m *machine) refresh(t *rapid.T) {
	p, f := m.aPosition(t), m.aField(t)
	got, err := m.reg.Refresh(t.Context(), m.user, registry.RefreshRequest{At: registry.Location{Field: f}, Position: p})
	noError(t, err)
	same(t, "verdict", got.Verdict, m.m.refresh(f, p))
	if got.Verdict != registry.RefreshRehome {
		same(t, "end", got.End, m.m.end())
	}
}

func (m *machine) acked(t *rapid.T) {
	p := m.aPosition(t)
	noError(t, m.reg.Acked(t.Context(), m.user, p))
	m.m.ack(p)
}

func (m *machine) breakEpoch(t *rapid.T) {
	epoch := rapid.SampledFrom(m.epochs).Draw(t, "epoch")
	got, err := m.reg.Break(t.Context(), m.user, epoch)
	noError(t, err)
	m.m.breaks(epoch, m.fresh(t, got))
	same(t, "epoch", got, m.m.epoch)
}

func (m *machine) leave(t *rapid.T) {
	f := m.aField(t)
	noError(t, m.reg.Leave(t.Context(), m.user, f))
	delete(m.m.fields, f)
}

func (m *machine) find(t *rapid.T) {
	id := m.anID(t)
	epoch, seq, err := m.reg.Find(t.Context(), m.user, id)
	noError(t, err)
	var wantEpoch protocol.Epoch
	var want protocol.Seq
	if m.m.known() {
		wantEpoch = m.m.epoch
		if i := slices.Index(m.m.ids, id); i >= 0 {
			want = m.m.base + protocol.Seq(i)
		}
	}
	same(t, "epoch", epoch, wantEpoch)
	same(t, "seq", seq, want)
}

func (m *machine) dump(t *rapid.T) {
	var err error
	m.hash, err = m.rdb.HGetAll(t.Context(), m.key("at")).Result()
	noError(t, err)
	m.list, err = m.rdb.LRange(t.Context(), m.key("log"), 0, -1).Result()
	noError(t, err)
	m.dumped = m.m.clone()
}

func (m *machine) restore(t *rapid.T) {
	if m.dumped == nil {
		t.Skip("no dump")
	}
	_, err := m.rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Del(t.Context(), m.key("at"), m.key("log"))
		if len(m.hash) > 0 {
			p.HSet(t.Context(), m.key("at"), m.hash)
		}
		for _, id := range m.list {
			p.RPush(t.Context(), m.key("log"), id)
		}
		return nil
	})
	noError(t, err)
	m.m = m.dumped.clone()
}

// lose loses both keys (a restart without data, or the window's end), or one of them.
func (m *machine) lose(t *rapid.T) {
	what := rapid.SampledFrom([]string{"both", "at", "log"}).Draw(t, "what")
	if what != "log" {
		noError(t, m.rdb.Del(t.Context(), m.key("at")).Err())
		m.m.loseHash()
	}
	if what != "at" {
		noError(t, m.rdb.Del(t.Context(), m.key("log")).Err())
		m.m.ids = nil
	}
}

// check is run after every step.
func (m *machine) check(t *rapid.T) {
	u, err := m.reg.Lookup(t.Context(), m.user)
	noError(t, err)
	same(t, "known", u.Known, m.m.known())
	m.sameFields(t, u.Locations)
	if u.Known {
		same(t, "epoch", u.Epoch, m.m.epoch)
		same(t, "base", u.Base, m.m.base)
		same(t, "end", u.End, m.m.end())
		same(t, "acked", u.Acked, m.m.acked)
	}
}

func (m *machine) sameFields(t *rapid.T, got []registry.Location) {
	fields := map[registry.Field]bool{}
	for _, l := range got {
		fields[l.Field] = true
	}
	if !maps.Equal(fields, m.m.fields) {
		t.Fatalf("fields are %v, want %v", fields, m.m.fields)
	}
}

func same(t *rapid.T, what string, got, want any) {
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s differs (-model +registry):\n%s", what, diff)
	}
}

func noError(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}
