package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
	"github.com/lastmile-gateway/lastmile/socket/internal/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// log is one user's log as Redis holds it. A copy is a dump of it.
type log struct {
	epoch protocol.Epoch
	base  protocol.Seq
	ids   []protocol.EventID // the first has seq base
	acked protocol.Seq
}

func (l log) copy() log { l.ids = slices.Clone(l.ids); return l }

func (l *log) end() protocol.Seq { return l.base + protocol.Seq(len(l.ids)) - 1 }

func (l *log) at(seq protocol.Seq) (protocol.EventID, bool) {
	if seq < l.base || seq > l.end() {
		return protocol.EventID{}, false
	}
	return l.ids[seq-l.base], true
}

// world answers scripts as registry and outbox do, for one user.
type world struct {
	t      *testing.T
	log    log
	epochs int
	docs   map[protocol.EventID]*protocol.Envelope
	names  map[string]protocol.EventID
	fields map[registry.Field]bool
	down   bool // every script fails
	noDocs bool // the outbox is away
	ran    []session.Op
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, docs: map[protocol.EventID]*protocol.Envelope{}, names: map[string]protocol.EventID{}, fields: map[registry.Field]bool{}}
	w.log = w.fresh()
	return w
}

func (w *world) fresh() log {
	w.epochs++
	return log{epoch: protocol.Epoch(fmt.Sprintf("epoch%011d", w.epochs)), ids: make([]protocol.EventID, 1)}
}

// event is the event of that name, made at its first use.
func (w *world) event(name string) *protocol.Envelope {
	id, ok := w.names[name]
	if !ok {
		id = protocol.NewEventID()
		w.names[name] = id
		w.docs[id] = &protocol.Envelope{ID: id, Type: "test", Time: start, Body: fmt.Appendf(nil, `{"id":%q}`, name)}
	}
	return w.docs[id]
}

// append is the relay's stage 1; what it returns is stage 2.
func (w *world) append(name string) protocol.Pair {
	w.log.ids = append(w.log.ids, w.event(name).ID)
	return protocol.Pair{User: "u", Epoch: w.log.epoch, Seq: w.log.end()}
}

func (w *world) breakEpoch() { w.log = w.fresh() }

func (w *world) run(s *session.Script) session.Answer {
	w.ran = append(w.ran, s.Op)
	if w.down {
		return session.Answer{Err: errors.New("redis is away")}
	}
	switch p := s.Position; s.Op {
	case session.OpConnect:
		return w.connect(s)
	case session.OpFetch:
		return w.fetch(s)
	case session.OpEpoch:
		return session.Answer{Epoch: w.log.epoch}
	case session.OpHolds:
		return session.Answer{Holding: w.holds(p)}
	case session.OpGap:
		return w.gap(p)
	case session.OpBreak:
		if p.Epoch == w.log.epoch {
			w.breakEpoch()
		}
		return session.Answer{Epoch: w.log.epoch}
	case session.OpRefresh:
		return w.refresh(s)
	case session.OpAcked:
		if id, ok := w.log.at(p.Seq); ok && p.Epoch == w.log.epoch && id == p.ID {
			w.log.acked = max(w.log.acked, p.Seq)
		}
	case session.OpLeave:
		delete(w.fields, s.At.Field)
	}
	return session.Answer{}
}

func (w *world) connect(s *session.Script) session.Answer {
	recovered := false
	if r := s.Resume; r != nil && r.Epoch == w.log.epoch && r.Seq >= w.log.base {
		if id, ok := w.log.at(r.Seq); ok && id == r.ID {
			recovered = true
		} else {
			w.breakEpoch()
		}
	}
	delete(w.fields, s.Replaces)
	w.fields[s.At.Field] = true
	return session.Answer{Connected: registry.Connected{
		Epoch: w.log.epoch, Base: w.log.base, IDs: slices.Clone(w.log.ids), Recovered: recovered, Acked: w.log.acked, HasAcked: w.log.acked > 0,
	}}
}

func (w *world) fetch(s *session.Script) session.Answer {
	if w.noDocs {
		return session.Answer{Err: errors.New("mongo is away")}
	}
	docs := map[protocol.EventID]*protocol.Envelope{}
	for _, id := range s.IDs {
		if d := w.docs[id]; d != nil {
			docs[id] = d
		}
	}
	return session.Answer{Docs: docs}
}

func (w *world) holds(p protocol.Position) registry.Holding {
	id, ok := w.log.at(p.Seq)
	switch {
	case p.Epoch == w.log.epoch && ok && id == p.ID:
		return registry.HoldsID
	case p.Epoch == w.log.epoch && p.Seq < w.log.base:
		return registry.HoldsLater
	}
	return registry.HoldsOther
}

// fits says whether the log continues what a session has seen.
func (w *world) fits(p protocol.Position) bool {
	id, ok := w.log.at(p.Seq)
	return p.Epoch == w.log.epoch && w.log.base <= p.Seq+1 && w.log.end() >= p.Seq && (!ok || id == p.ID)
}

func (w *world) gap(p protocol.Position) session.Answer {
	if !w.fits(p) {
		return session.Answer{Err: registry.ErrBreak}
	}
	return session.Answer{IDs: slices.Clone(w.log.ids[p.Seq+1-w.log.base:])}
}

func (w *world) refresh(s *session.Script) session.Answer {
	w.fields[s.At.Field] = true
	switch {
	case s.Position.Epoch != w.log.epoch:
		return session.Answer{Refreshed: registry.Refreshed{Verdict: registry.RefreshRehome}}
	case !w.fits(s.Position):
		return session.Answer{Refreshed: registry.Refreshed{Verdict: registry.RefreshBreak, End: w.log.end()}}
	}
	return session.Answer{Refreshed: registry.Refreshed{End: w.log.end()}}
}

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// ticket is a pair at its inbox.
type ticket struct{ settled bool }

func (t *ticket) Settle() { t.settled = true }

// sess is a session under test, and its client's end of the connection.
type sess struct {
	*world
	m      *session.Machine
	cfg    *session.Config
	now    time.Time
	counts map[session.What]int
	got    []frame // written so far
}

type frame struct {
	Type      string
	N         int64
	Epoch     protocol.Epoch
	Seq       protocol.Seq
	ID        protocol.EventID
	Recovered bool
	Events    []struct {
		Seq         protocol.Seq
		Redelivered bool
		Event       struct{ ID string }
	}
}

func decodeFrame(t interface{ Fatalf(string, ...any) }, b []byte) (f frame) {
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatalf("frame %s: %v", b, err)
	}
	return f
}

type option func(*session.Config, *session.Client)

func resume(p protocol.Position) option {
	return func(_ *session.Config, c *session.Client) { c.Resume = &p }
}

func plain(_ *session.Config, c *session.Client) { c.Acks = false }

func (w *world) session(opts ...option) *sess {
	s := &sess{world: w, now: start, counts: map[session.What]int{}}
	s.cfg = &session.Config{
		ConnectTimeout: 8 * time.Second, AckTimeout: 20 * time.Second, ReloadTimeout: 60 * time.Second,
		RefreshInterval: 30 * time.Second, AckedInterval: 5 * time.Second, QueueEvents: 1000, QueueBytes: 1 << 20,
		ReconnectWithin: func() time.Duration { return time.Second },
		Count:           func(what session.What, n int) { s.counts[what] += n },
		Random:          func() float64 { return 0.5 },
	}
	client := session.Client{
		User: "u", Acks: true,
		At: registry.Location{Field: registry.Field{Instance: "a-000000000000", Session: "session00000"}, Since: start},
	}
	for _, o := range opts {
		o(s.cfg, &client)
	}
	s.m = session.New(s.cfg, client, s.now)
	return s
}

// connected is a session whose client has acked its welcome.
func (w *world) connected(opts ...option) *sess {
	s := w.session(opts...)
	s.scripts()
	s.read()
	s.ack(s.welcome().N, s.welcome().Seq)
	s.scripts()
	return s
}

// one runs the next script, if there is one.
func (s *sess) one() bool {
	sc := s.m.Script(s.now)
	if sc == nil {
		return false
	}
	s.m.Done(s.now, sc, s.run(sc))
	return true
}

func (s *sess) scripts() {
	s.t.Helper()
	for range 1000 {
		if !s.one() {
			return
		}
	}
	s.t.Fatal("scripts without end")
}

// push gives a pair of that event to the session, without running what it asks for.
func (s *sess) push(name string, p protocol.Pair) *ticket {
	t := &ticket{}
	s.m.Push(s.now, session.Delivery{Event: s.event(name), Pair: p, Ticket: t})
	return t
}

// deliver is push and all that comes of it.
func (s *sess) deliver(name string, p protocol.Pair) *ticket {
	t := s.push(name, p)
	s.scripts()
	return t
}

func (s *sess) ack(n int64, seq protocol.Seq) bool { return s.m.Ack(s.now, n, seq) }

// read writes what is queued and returns it.
func (s *sess) read() []frame {
	s.t.Helper()
	var fresh []frame
	for {
		var ef protocol.EventsFrame
		b, w := s.m.Take(s.now, &ef)
		if b == nil {
			return fresh
		}
		f := decodeFrame(s.t, b)
		fresh, s.got = append(fresh, f), append(s.got, f)
		s.m.Written(s.now, w)
		s.scripts()
	}
}

// welcome is the newest one that was written.
func (s *sess) welcome() frame {
	s.t.Helper()
	for _, f := range slices.Backward(s.got) {
		if f.Type == "welcome" {
			return f
		}
	}
	s.t.Fatal("no welcome was written")
	return frame{}
}

// shown is the events written since the welcome n, as name@seq.
func (s *sess) shown(n int64) []string {
	var all []string
	current := int64(0)
	for _, f := range s.got {
		if f.Type == "welcome" {
			current = f.N
		}
		for _, e := range f.Events {
			if current == n {
				all = append(all, fmt.Sprintf("%s@%d", e.Event.ID, e.Seq))
			}
		}
	}
	return all
}

func (s *sess) wantShown(n int64, want ...string) {
	s.t.Helper()
	if got := s.shown(n); !slices.Equal(got, want) {
		s.t.Errorf("shown after welcome %d: %v, want %v", n, got, want)
	}
}

func (s *sess) wantSettled(want bool, tickets ...*ticket) {
	s.t.Helper()
	for i, t := range tickets {
		if t.settled != want {
			s.t.Errorf("ticket %d: settled is %v, want %v", i, t.settled, want)
		}
	}
}

// gone ends the connection and returns how many pairs it still held.
func (s *sess) gone() int {
	held := 0
	for _, t := range s.m.End(s.now) {
		if !t.(*ticket).settled {
			held++
		}
	}
	s.scripts()
	return held
}

func (s *sess) wait(d time.Duration) {
	s.now = s.now.Add(d)
	s.m.Tick(s.now)
	s.scripts()
}
