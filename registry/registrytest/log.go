package registrytest

import (
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

var logs = map[string]func(*env){
	"Gap_AfterEverySeq":     gapAfterEverySeq,
	"Gap_NothingMissed":     gapNothingMissed,
	"Gap_Breaks":            gapBreaks,
	"Gap_FromTheEdge":       gapFromTheEdge,
	"Holds":                 holds,
	"Break_NewEpoch":        breakNewEpoch,
	"Break_Once":            breakOnce,
	"Break_WithoutLog":      breakWithoutLog,
	"Break_StartsThePause":  breakStartsThePause,
	"Acked_OnlyUpwards":     ackedOnlyUpwards,
	"Acked_OnlyWhatIsThere": ackedOnlyThere,
	"Acked_AnEmptyLog":      ackedEmptyLog,
	"Find":                  find,
	"Lookup":                lookup,
	"Lookup_Unknown":        lookupUnknown,
}

func (e *env) gap(p protocol.Position) ([]protocol.EventID, error) {
	return e.reg.Gap(e.ctx(), e.user, p.Epoch, p.Seq, p.ID)
}

func gapAfterEverySeq(e *env) {
	c := e.connect(registry.ConnectRequest{})
	ids, _ := e.append(4)
	at := protocol.EventID{}
	for i := range ids {
		got, err := e.gap(protocol.Position{Epoch: c.Epoch, Seq: protocol.Seq(i), ID: at})
		e.must(err)
		equal(e, "ids in the gap", len(got), len(ids)-i)
		equal(e, "first of them", got[0], ids[i])
		at = ids[i]
	}
}

func gapNothingMissed(e *env) {
	c := e.connect(registry.ConnectRequest{})
	ids, _ := e.append(1)
	got, err := e.gap(protocol.Position{Epoch: c.Epoch, Seq: 1, ID: ids[0]})
	e.must(err)
	equal(e, "ids in the gap", len(got), 0)
}

func gapBreaks(e *env) {
	c := e.connect(registry.ConnectRequest{})
	ids, _ := e.append(2)
	for what, p := range map[string]protocol.Position{
		"other epoch":       {Epoch: protocol.NewEpoch(), Seq: 1, ID: ids[0]},
		"other id":          {Epoch: c.Epoch, Seq: 1, ID: ids[1]},
		"id at sentinel":    {Epoch: c.Epoch, Seq: 0, ID: ids[0]},
		"beyond the end":    {Epoch: c.Epoch, Seq: 3, ID: ids[1]},
		"sentinel's id":     {Epoch: c.Epoch, Seq: 1},
		"far beyond it":     {Epoch: c.Epoch, Seq: protocol.MaxSeq, ID: ids[1]},
		"no epoch":          {Seq: 1, ID: ids[0]},
		"before everything": {Epoch: c.Epoch, Seq: -2},
	} {
		if _, err := e.gap(p); !errors.Is(err, registry.ErrBreak) {
			e.Errorf("%s: %v, want ErrBreak", what, err)
		}
	}
	e.user += "-nobody"
	if _, err := e.gap(protocol.Position{Epoch: c.Epoch}); !errors.Is(err, registry.ErrBreak) {
		e.Errorf("no log: %v, want ErrBreak", err)
	}
}

func gapFromTheEdge(e *env) {
	e = e.with(registry.Config{MaxLog: 4, TrimLog: 3})
	c := e.connect(registry.ConnectRequest{})
	ids, _ := e.append(5)
	e.trim() // 3, 4, 5 stay
	for seq, want := range map[protocol.Seq]int{4: 1, 3: 2, 2: 3} {
		got, err := e.gap(protocol.Position{Epoch: c.Epoch, Seq: seq, ID: ids[seq-1]})
		e.must(err)
		equal(e, "ids in the gap", len(got), want)
	}
	if _, err := e.gap(protocol.Position{Epoch: c.Epoch, Seq: 1, ID: ids[0]}); !errors.Is(err, registry.ErrBreak) {
		e.Errorf("event 2 trimmed away: %v, want ErrBreak", err)
	}
}

func holds(e *env) {
	e = e.with(registry.Config{MaxLog: 4, TrimLog: 3})
	c := e.connect(registry.ConnectRequest{})
	ids, _ := e.append(5)
	e.trim() // 3, 4, 5 stay
	for _, q := range []struct {
		epoch protocol.Epoch
		seq   protocol.Seq
		id    protocol.EventID
		want  registry.Holding
	}{
		{c.Epoch, 3, ids[2], registry.HoldsID},
		{c.Epoch, 5, ids[4], registry.HoldsID},
		{c.Epoch, 2, ids[1], registry.HoldsLater},
		{c.Epoch, 4, ids[2], registry.HoldsOther},
		{c.Epoch, 6, ids[4], registry.HoldsOther},
		{protocol.NewEpoch(), 3, ids[2], registry.HoldsOther},
	} {
		got, err := e.reg.Holds(e.ctx(), e.user, q.epoch, q.seq, q.id)
		e.must(err)
		equal(e, "holding", got, q.want)
	}
}

func breakNewEpoch(e *env) {
	a, b := location("A"), location("B")
	e.connect(registry.ConnectRequest{At: a})
	c := e.connect(registry.ConnectRequest{At: b})
	ids, _ := e.append(3)
	e.must(e.reg.Acked(e.ctx(), e.user, protocol.Position{Epoch: c.Epoch, Seq: 3, ID: ids[2]}))

	epoch, err := e.reg.Break(e.ctx(), e.user, c.Epoch)
	e.must(err)
	equal(e, "same epoch", epoch == c.Epoch, false)
	u := e.lookup()
	equal(e, "epoch", u.Epoch, epoch)
	equal(e, "end", u.End, 0)
	equal(e, "acked", u.Acked, 0)
	e.fieldsAre(u.Locations, a, b)
	ttl, err := e.rdb.PTTL(e.ctx(), e.key("log")).Result()
	e.must(err)
	equal(e, "log has an end", ttl > 0, true)
	_, seqs := e.append(1)
	equal(e, "first seq", seqs[0], 1)
	equal(e, "careful seq of an event of the old epoch", e.careful(ids[0]).Seq, 2)
}

func breakOnce(e *env) {
	c := e.connect(registry.ConnectRequest{})
	first, err := e.reg.Break(e.ctx(), e.user, c.Epoch)
	e.must(err)
	e.append(1)
	second, err := e.reg.Break(e.ctx(), e.user, c.Epoch)
	e.must(err)
	equal(e, "epoch", second, first)
	equal(e, "end", e.lookup().End, 1)
}

// After a session's break a connect makes no other epoch for a while.
func breakStartsThePause(e *env) {
	c := e.connect(registry.ConnectRequest{})
	epoch, err := e.reg.Break(e.ctx(), e.user, c.Epoch)
	e.must(err)
	got := e.resume(protocol.Position{Epoch: epoch, Seq: 7, ID: protocol.NewEventID()})
	equal(e, "recovered", got.Recovered, false)
	equal(e, "epoch", got.Epoch, epoch)
}

func breakWithoutLog(e *env) {
	epoch, err := e.reg.Break(e.ctx(), e.user, protocol.NewEpoch())
	e.must(err)
	equal(e, "epoch", epoch, "")
	equal(e, "known", e.lookup().Known, false)
}

func ackedOnlyUpwards(e *env) {
	c := e.connect(registry.ConnectRequest{})
	ids, _ := e.append(3)
	for _, step := range []struct{ ack, want protocol.Seq }{{2, 2}, {1, 2}, {2, 2}, {3, 3}} {
		e.must(e.reg.Acked(e.ctx(), e.user, protocol.Position{Epoch: c.Epoch, Seq: step.ack, ID: ids[step.ack-1]}))
		equal(e, "acked", e.lookup().Acked, step.want)
	}
	equal(e, "acked at the next connect", e.connect(registry.ConnectRequest{}).Acked, 3)
}

func ackedOnlyThere(e *env) {
	e = e.with(registry.Config{MaxLog: 3, TrimLog: 2})
	c := e.connect(registry.ConnectRequest{})
	ids, _ := e.append(4)
	e.trim()
	for what, p := range map[string]protocol.Position{
		"other epoch":    {Epoch: protocol.NewEpoch(), Seq: 4, ID: ids[3]},
		"other id":       {Epoch: c.Epoch, Seq: 4, ID: ids[2]},
		"beyond the end": {Epoch: c.Epoch, Seq: 5, ID: ids[3]},
		"trimmed away":   {Epoch: c.Epoch, Seq: 1, ID: ids[0]},
	} {
		e.must(e.reg.Acked(e.ctx(), e.user, p))
		equal(e, "acked after "+what, e.lookup().Acked, 0)
	}
	e.user += "-nobody"
	e.must(e.reg.Acked(e.ctx(), e.user, protocol.Position{Epoch: c.Epoch, Seq: 4, ID: ids[3]}))
	equal(e, "known", e.lookup().Known, false)
}

// A user who reloaded after Redis lost everything has acked the empty log's welcome: he has seen what there
// was before, and is told apart from one who has confirmed nothing.
func ackedEmptyLog(e *env) {
	at := location("A")
	c := e.connect(registry.ConnectRequest{At: at})
	equal(e, "has acked", c.HasAcked, false)
	e.must(e.reg.Acked(e.ctx(), e.user, protocol.Position{Epoch: c.Epoch, ID: protocol.NewEventID()}))
	equal(e, "has acked under another id", e.lookup().HasAcked, false)
	for range 2 {
		e.must(e.reg.Acked(e.ctx(), e.user, protocol.Position{Epoch: c.Epoch}))
		equal(e, "has acked", e.lookup().HasAcked, true)
		equal(e, "acked", e.lookup().Acked, 0)
	}
	r := e.one(func(p redis.Pipeliner) *registry.RouteCmd { return e.reg.QueueLocate(e.ctx(), p, e.user) })
	equal(e, "has acked, at a look", r.HasAcked, true)
	equal(e, "has acked, at the next connect", e.connect(registry.ConnectRequest{At: at}).HasAcked, true)
	_, err := e.reg.Break(e.ctx(), e.user, c.Epoch)
	e.must(err)
	equal(e, "has acked after a break", e.lookup().HasAcked, false)
}

func find(e *env) {
	id := protocol.NewEventID()
	look := func(what string, id protocol.EventID, wantEpoch protocol.Epoch, wantSeq protocol.Seq) {
		epoch, seq, err := e.reg.Find(e.ctx(), e.user, id)
		e.must(err)
		equal(e, what+": epoch", epoch, wantEpoch)
		equal(e, what+": seq", seq, wantSeq)
	}
	look("no log", id, "", 0)
	e = e.with(registry.Config{MaxLog: 3, TrimLog: 2})
	c := e.connect(registry.ConnectRequest{})
	look("empty log", id, c.Epoch, 0)
	look("sentinel", protocol.EventID{}, c.Epoch, 0)
	ids, _ := e.append(4)
	look("there", ids[1], c.Epoch, 2)
	e.trim()
	look("there after a trim", ids[3], c.Epoch, 4)
	look("trimmed away", ids[0], c.Epoch, 0)
}

func lookup(e *env) {
	e = e.with(registry.Config{MaxLog: 4, TrimLog: 2})
	at := location("A")
	c := e.connect(registry.ConnectRequest{At: at})
	e.append(5)
	e.trim()
	u := e.lookup()
	equal(e, "known", u.Known, true)
	equal(e, "epoch", u.Epoch, c.Epoch)
	equal(e, "base", u.Base, 4)
	equal(e, "end", u.End, 5)
	equal(e, "revoked", u.Revoked.IsZero(), true)
	e.fieldsAre(u.Locations, at)
}

func lookupUnknown(e *env) {
	u := e.lookup()
	equal(e, "known", u.Known, false)
	equal(e, "locations", len(u.Locations), 0)
}
