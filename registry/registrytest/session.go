package registrytest

import (
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

var sessions = map[string]func(*env){
	"Refresh_OK":            refreshOK,
	"Refresh_RenewsExpiry":  refreshRenews,
	"Refresh_Break":         refreshBreak,
	"Refresh_Rehome":        refreshRehome,
	"Refresh_FromTheEdge":   refreshFromTheEdge,
	"Leave_OnlyWhatIsNamed": leaveOnlyNamed,
	"Leave_NobodyThere":     leaveNobody,
	"Leave_LogStays":        leaveLogStays,
	"Revoke":                revoke,
	"Case_D01_OldCleanup":   caseD01,
}

func (e *env) refresh(at registry.Location, p protocol.Position) registry.Refreshed {
	e.Helper()
	r, err := e.reg.Refresh(e.ctx(), e.user, registry.RefreshRequest{At: at, Position: p})
	e.must(err)
	return r
}

func refreshOK(e *env) {
	at := location("A")
	c := e.connect(registry.ConnectRequest{At: at})
	ids, _ := e.append(3)
	for seq, id := range append([]protocol.EventID{{}}, ids...) {
		r := e.refresh(at, protocol.Position{Epoch: c.Epoch, Seq: protocol.Seq(seq), ID: id})
		equal(e, "verdict", r.Verdict, registry.RefreshOK)
		equal(e, "end", r.End, 3)
	}
	e.fieldsAre(e.lookup().Locations, at)

	later := at
	later.Device = "another"
	e.refresh(later, protocol.Position{Epoch: c.Epoch})
	e.fieldsAre(e.lookup().Locations, at) // what is there stays as it was registered
}

func refreshRenews(e *env) {
	at := location("A")
	c := e.connect(registry.ConnectRequest{At: at})
	for _, k := range []string{"at", "log"} {
		e.must(e.rdb.PExpire(e.ctx(), e.key(k), 20*time.Second).Err())
	}
	e.refresh(at, protocol.Position{Epoch: c.Epoch})
	for _, k := range []string{"at", "log"} {
		ttl, err := e.rdb.PTTL(e.ctx(), e.key(k)).Result()
		e.must(err)
		equal(e, k+" is renewed", ttl > time.Minute, true)
	}
}

func refreshBreak(e *env) {
	at := location("A")
	c := e.connect(registry.ConnectRequest{At: at})
	ids, _ := e.append(2)
	for what, p := range map[string]protocol.Position{
		"other id":       {Epoch: c.Epoch, Seq: 1, ID: ids[1]},
		"shorter":        {Epoch: c.Epoch, Seq: 3, ID: ids[1]},
		"id at sentinel": {Epoch: c.Epoch, Seq: 0, ID: ids[0]},
	} {
		equal(e, "verdict on "+what, e.refresh(at, p).Verdict, registry.RefreshBreak)
	}
	equal(e, "epoch", e.lookup().Epoch, c.Epoch) // to break it is the session's own step
}

func refreshRehome(e *env) {
	at := location("A")
	equal(e, "verdict without a log", e.refresh(at, protocol.Position{Epoch: protocol.NewEpoch()}).Verdict, registry.RefreshRehome)
	ttl, err := e.rdb.PTTL(e.ctx(), e.key("at")).Result()
	e.must(err)
	equal(e, "what it left has an end", ttl > 0, true)

	c := e.connect(registry.ConnectRequest{At: at})
	_, err = e.reg.Break(e.ctx(), e.user, c.Epoch)
	e.must(err)
	equal(e, "verdict after a break", e.refresh(at, protocol.Position{Epoch: c.Epoch}).Verdict, registry.RefreshRehome)
}

func refreshFromTheEdge(e *env) {
	e = e.with(registry.Config{MaxLog: 4, TrimLog: 3})
	at := location("A")
	c := e.connect(registry.ConnectRequest{At: at})
	ids, _ := e.append(5)
	e.trim() // 3, 4, 5 stay
	for seq, want := range map[protocol.Seq]registry.RefreshVerdict{
		1: registry.RefreshBreak, 2: registry.RefreshOK, 3: registry.RefreshOK, 5: registry.RefreshOK,
	} {
		r := e.refresh(at, protocol.Position{Epoch: c.Epoch, Seq: seq, ID: ids[seq-1]})
		equal(e, "verdict", r.Verdict, want)
	}
}

func leaveOnlyNamed(e *env) {
	a, b, c := location("A"), location("B"), location("A")
	for _, at := range []registry.Location{a, b, c} {
		e.connect(registry.ConnectRequest{At: at})
	}
	e.must(e.reg.Leave(e.ctx(), e.user, a.Field, location("A").Field))
	e.fieldsAre(e.lookup().Locations, b, c)
	e.must(e.reg.Leave(e.ctx(), e.user))
	e.fieldsAre(e.lookup().Locations, b, c)
	e.must(e.reg.Leave(e.ctx(), e.user, b.Field, c.Field))
	e.fieldsAre(e.lookup().Locations)
}

func leaveNobody(e *env) {
	e.must(e.reg.Leave(e.ctx(), e.user, location("A").Field))
	equal(e, "known", e.lookup().Known, false)
}

func leaveLogStays(e *env) {
	at := location("A")
	c := e.connect(registry.ConnectRequest{At: at})
	e.must(e.reg.Leave(e.ctx(), e.user, at.Field))
	ids, seqs := e.append(2)
	equal(e, "seq while nobody is there", seqs[1], 2)
	got := e.resume(protocol.Position{Epoch: c.Epoch})
	equal(e, "recovered", got.Recovered, true)
	equal(e, "missed", len(got.After(0)), 2)
	equal(e, "first missed", got.After(0)[0], ids[0])
}

func revoke(e *env) {
	at := location("A")
	early, late := time.UnixMilli(1_700_000_000_000), time.UnixMilli(1_800_000_000_001)
	e.must(e.reg.Revoke(e.ctx(), e.user, early))
	c := e.connect(registry.ConnectRequest{At: at})
	equal(e, "revoked at connect", c.Revoked.Equal(early), true)
	e.must(e.reg.Revoke(e.ctx(), e.user, late))
	e.must(e.reg.Revoke(e.ctx(), e.user, early))
	equal(e, "revoked at refresh", e.refresh(at, protocol.Position{Epoch: c.Epoch}).Revoked.Equal(late), true)
	equal(e, "revoked at look-up", e.lookup().Revoked.Equal(late), true)
	ttl, err := e.rdb.PTTL(e.ctx(), e.key("revoked")).Result()
	e.must(err)
	equal(e, "kept for a day", ttl > 23*time.Hour && ttl <= 24*time.Hour, true)
}

// The old connection's end is noticed after the user came back on another server.
func caseD01(e *env) {
	old, now := location("A"), location("B")
	e.connect(registry.ConnectRequest{At: old})
	e.connect(registry.ConnectRequest{At: now})
	e.must(e.reg.Leave(e.ctx(), e.user, old.Field))
	e.fieldsAre(e.careful(protocol.NewEventID()).Locations, now)
}
