package registrytest

import (
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

// The registry's part of histories in which Redis restarts older, or forgets.
var histories = map[string]func(*env){
	"Trace_T04_PairOfAnExpiredLog":      traceT04,
	"Trace_T05_TrimmedBeforeItsPair":    traceT05,
	"Trace_T08_OtherIDAtThePosition":    traceT08,
	"Trace_T09_RegistrationLost":        traceT09,
	"Trace_T36_RegrownWithAnother":      traceT36,
	"Trace_T37_RegrownInAnotherOrder":   traceT37,
	"Trace_T38_DuplicateBeyondAGap":     traceT38,
	"Trace_T39_RegrownWhileNothingCame": traceT39,
	"RestartEmpty":                      restartEmpty,
	"RestartOlder_NothingLost":          restartOlderNothingLost,
}

// plainly appends ids whatever the log holds.
func (e *env) plainly(ids ...protocol.EventID) {
	e.Helper()
	for _, id := range ids {
		e.one(func(p redis.Pipeliner) *registry.RouteCmd { return e.reg.QueueAppend(e.ctx(), p, e.user, id) })
	}
}

func (e *env) breaks(what string, p protocol.Position) {
	e.Helper()
	if _, err := e.gap(p); !errors.Is(err, registry.ErrBreak) {
		e.Errorf("%s: %v, want ErrBreak", what, err)
	}
}

func (e *env) notHeld(p protocol.Position) {
	e.Helper()
	held, err := e.reg.Holds(e.ctx(), e.user, p.Epoch, p.Seq, p.ID)
	e.must(err)
	equal(e, "holding", held, registry.HoldsOther)
}

func (e *env) ackIgnored(p protocol.Position) {
	e.Helper()
	before := e.lookup().Acked
	e.must(e.reg.Acked(e.ctx(), e.user, p))
	equal(e, "acked", e.lookup().Acked, before)
}

// e1@1 of epoch 1 pends at a dead server while the log expires; in epoch 2 another
// event has seq 1. Nothing said about the one is taken for the other.
func traceT04(e *env) {
	c1 := e.connect(registry.ConnectRequest{})
	old, _ := e.append(1)
	e.must(e.rdb.Del(e.ctx(), e.key("at"), e.key("log")).Err())
	c2 := e.connect(registry.ConnectRequest{At: location("B")})
	now, seqs := e.append(1)
	equal(e, "seq in the new epoch", seqs[0], 1)
	for _, id := range []protocol.EventID{old[0], now[0]} {
		p := protocol.Position{Epoch: c1.Epoch, Seq: 1, ID: id}
		e.ackIgnored(p)
		e.notHeld(p)
		e.breaks("gap of the old epoch", p)
	}
	epoch, err := e.reg.Break(e.ctx(), e.user, c1.Epoch)
	e.must(err)
	equal(e, "epoch after a break of the old one", epoch, c2.Epoch)
}

// e1@1 is trimmed away before the session had it: a break, and not a silent skip.
func traceT05(e *env) {
	e = e.with(registry.Config{MaxLog: 2, TrimLog: 1})
	at := location("A")
	c := e.connect(registry.ConnectRequest{At: at})
	ids, _ := e.append(2)
	e.trim()
	e.breaks("gap from the sentinel", protocol.Position{Epoch: c.Epoch})
	epoch, err := e.reg.Break(e.ctx(), e.user, c.Epoch)
	e.must(err)
	got := e.connect(registry.ConnectRequest{At: at, Resume: &protocol.Position{Epoch: c.Epoch}})
	equal(e, "epoch", got.Epoch, epoch)
	equal(e, "recovered", got.Recovered, false)
	e.notHeld(protocol.Position{Epoch: c.Epoch, Seq: 1, ID: ids[0]})
}

// The log holds e7 where the client has seen e5.
func traceT08(e *env) {
	c := e.connect(registry.ConnectRequest{})
	e.append(4)
	dumped := e.dump()
	e5, seqs := e.append(1)
	position := protocol.Position{Epoch: c.Epoch, Seq: seqs[0], ID: e5[0]}
	e.restore(dumped)
	e7, seqs := e.append(1)
	equal(e, "seq of e7", seqs[0], position.Seq)

	got := e.resume(position)
	equal(e, "recovered", got.Recovered, false)
	equal(e, "same epoch", got.Epoch == c.Epoch, false)
	e.notHeld(protocol.Position{Epoch: c.Epoch, Seq: 5, ID: e7[0]})
}

// Redis restarts from before the session's registration: refresh puts it back,
// and what came meanwhile is the gap.
func traceT09(e *env) {
	e.connect(registry.ConnectRequest{At: location("B")})
	dumped := e.dump()
	at := location("A")
	c := e.connect(registry.ConnectRequest{At: at})
	e.restore(dumped)
	ids, _ := e.append(1)
	position := protocol.Position{Epoch: c.Epoch, Seq: c.End(), ID: c.EndID()}
	r := e.refresh(at, position)
	equal(e, "verdict", r.Verdict, registry.RefreshOK)
	equal(e, "end", r.End, 1)
	missed, err := e.gap(position)
	e.must(err)
	equal(e, "missed", missed[0], ids[0])
	equal(e, "locations", len(e.careful(protocol.NewEventID()).Locations), 2)
}

// e1@1 acked; Redis goes back, and the log grows again with e2@1.
func traceT36(e *env) {
	at := location("A")
	c := e.connect(registry.ConnectRequest{At: at})
	dumped := e.dump()
	e1, _ := e.append(1)
	position := protocol.Position{Epoch: c.Epoch, Seq: 1, ID: e1[0]}
	e.must(e.reg.Acked(e.ctx(), e.user, position))
	e.restore(dumped)
	e.append(1)
	equal(e, "acked", e.lookup().Acked, 0)
	e.ackIgnored(position)
	e.notHeld(position)
	e.breaks("gap", position)
	equal(e, "verdict", e.refresh(at, position).Verdict, registry.RefreshBreak)
}

// Sent e2@1 and e1@2; the log grows again as e1@1, e2@2; the ack of seq 1 comes.
func traceT37(e *env) {
	at := location("A")
	c := e.connect(registry.ConnectRequest{At: at})
	dumped := e.dump()
	e2, _ := e.append(1)
	e1, _ := e.append(1)
	e.restore(dumped)
	e.plainly(e1[0], e2[0])
	e.ackIgnored(protocol.Position{Epoch: c.Epoch, Seq: 1, ID: e2[0]})
	sent := protocol.Position{Epoch: c.Epoch, Seq: 2, ID: e1[0]}
	e.notHeld(sent)
	e.breaks("gap", sent)
	equal(e, "verdict", e.refresh(at, sent).Verdict, registry.RefreshBreak)
}

// The log holds e1 twice, with e2 between: a gap names each in order and no more
// than there is.
func traceT38(e *env) {
	c := e.connect(registry.ConnectRequest{})
	e1, e2 := protocol.NewEventID(), protocol.NewEventID()
	e.plainly(e1, e2, e1)
	missed, err := e.gap(protocol.Position{Epoch: c.Epoch, Seq: 1, ID: e1})
	e.must(err)
	equal(e, "missed", len(missed), 2)
	equal(e, "first", missed[0], e2)
	equal(e, "second", missed[1], e1)
	e.breaks("gap past the end", protocol.Position{Epoch: c.Epoch, Seq: 4, ID: e1})
}

// Sent e2@1; the log grows again as e1@1, e2@2, and nothing tells the session.
func traceT39(e *env) {
	at := location("A")
	c := e.connect(registry.ConnectRequest{At: at})
	dumped := e.dump()
	e2, _ := e.append(1)
	e.restore(dumped)
	e.plainly(protocol.NewEventID(), e2[0])
	r := e.refresh(at, protocol.Position{Epoch: c.Epoch, Seq: 1, ID: e2[0]})
	equal(e, "verdict", r.Verdict, registry.RefreshBreak)
}

func restartEmpty(e *env) {
	at := location("A")
	c := e.connect(registry.ConnectRequest{At: at})
	ids, _ := e.append(3)
	position := protocol.Position{Epoch: c.Epoch, Seq: 3, ID: ids[2]}
	e.must(e.rdb.Del(e.ctx(), e.key("at"), e.key("log")).Err())
	equal(e, "verdict", e.refresh(at, position).Verdict, registry.RefreshRehome)
	_, seqs := e.append(1)
	equal(e, "seq meanwhile", seqs[0], 0)
	got := e.connect(registry.ConnectRequest{At: location("A"), Replaces: at.Field, Resume: &position})
	equal(e, "recovered", got.Recovered, false)
	equal(e, "same epoch", got.Epoch == c.Epoch, false)
	equal(e, "sessions", len(got.Locations), 1)
	equal(e, "seq of a careful route", e.careful(ids[0]).Seq, 1)
}

// Redis restarts from a dump that has all that anybody saw: nobody notices.
func restartOlderNothingLost(e *env) {
	at := location("A")
	c := e.connect(registry.ConnectRequest{At: at})
	ids, _ := e.append(3)
	dumped := e.dump()
	lost, _ := e.append(2)
	e.restore(dumped)
	position := protocol.Position{Epoch: c.Epoch, Seq: 3, ID: ids[2]}
	equal(e, "verdict", e.refresh(at, position).Verdict, registry.RefreshOK)
	for i, id := range lost {
		equal(e, "seq of a careful route", e.careful(id).Seq, protocol.Seq(4+i))
	}
	got := e.resume(position)
	equal(e, "recovered", got.Recovered, true)
	equal(e, "missed", len(got.After(3)), 2)
}
