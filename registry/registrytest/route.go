package registrytest

import (
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

var routes = map[string]func(*env){
	"Append_Contiguous":          appendContiguous,
	"Append_UnknownUser":         appendUnknownUser,
	"Append_Whereabouts":         appendWhereabouts,
	"Append_SaysWhenToTrim":      appendSaysWhenToTrim,
	"Append_NeverRenewsExpiry":   appendNeverRenews,
	"Careful_OnceInTheLog":       carefulOnce,
	"Careful_TrimsByItself":      carefulTrims,
	"Careful_InAPipeline":        carefulPipeline,
	"Careful_OfHalfALog":         carefulOfHalfALog,
	"Locate_AppendsNothing":      locateAppendsNothing,
	"Trim_KeepsSeqs":             trimKeepsSeqs,
	"Case_B20_ErrorOfOneUser":    caseB20,
	"Case_B20_ErrorOfCareful":    caseB20Careful,
	"Trace_T21_AppendedTwice":    traceT21,
	"Trace_T22_CarefulAtOnce":    traceT22,
	"Trace_T23_LookThenTrim":     traceT23,
	"Trace_T24_RoutedBeforeALog": traceT24,
}

func appendContiguous(e *env) {
	e.connect(registry.ConnectRequest{})
	for round := range 3 {
		_, seqs := e.append(10)
		for i, seq := range seqs {
			equal(e, "seq", seq, protocol.Seq(round*10+i+1))
		}
	}
}

func appendUnknownUser(e *env) {
	_, seqs := e.append(1)
	equal(e, "seq", seqs[0], 0)
	n, err := e.rdb.Exists(e.ctx(), e.key("log"), e.key("at")).Result()
	e.must(err)
	equal(e, "keys made", n, 0)
}

func appendWhereabouts(e *env) {
	a, b := location("A"), location("B")
	e.connect(registry.ConnectRequest{At: a})
	c := e.connect(registry.ConnectRequest{At: b})
	ids, _ := e.append(2)
	e.must(e.reg.Acked(e.ctx(), e.user, protocol.Position{Epoch: c.Epoch, Seq: 1, ID: ids[0]}))

	r := e.one(func(p redis.Pipeliner) *registry.RouteCmd {
		return e.reg.QueueAppend(e.ctx(), p, e.user, protocol.NewEventID())
	})
	equal(e, "seq", r.Seq, 3)
	equal(e, "epoch", r.Epoch, c.Epoch)
	equal(e, "acked", r.Acked, 1)
	e.fieldsAre(r.Locations, a, b)
}

// one runs a pipeline of one command.
func (e *env) one(queue func(redis.Pipeliner) *registry.RouteCmd) registry.Routed {
	e.Helper()
	p := e.rdb.Pipeline()
	cmd := queue(p)
	_, err := p.Exec(e.ctx())
	e.must(err)
	r, err := cmd.Result()
	e.must(err)
	return r
}

func appendSaysWhenToTrim(e *env) {
	e = e.with(registry.Config{MaxLog: 3, TrimLog: 2})
	e.connect(registry.ConnectRequest{})
	for _, want := range []bool{false, false, true, true} {
		r := e.one(func(p redis.Pipeliner) *registry.RouteCmd {
			return e.reg.QueueAppend(e.ctx(), p, e.user, protocol.NewEventID())
		})
		equal(e, "trim", r.Trim, want)
		if !want {
			e.trim() // within the bound, or just at it: nothing goes
			equal(e, "base", e.lookup().Base, 0)
		}
	}
	e.trim()
	u := e.lookup()
	equal(e, "base", u.Base, 3)
	equal(e, "end", u.End, 4)
}

func appendNeverRenews(e *env) {
	e.connect(registry.ConnectRequest{})
	for _, k := range []string{"at", "log"} {
		e.must(e.rdb.PExpire(e.ctx(), e.key(k), time.Minute).Err())
	}
	e.append(1)
	e.careful(protocol.NewEventID())
	for _, k := range []string{"at", "log"} {
		ttl, err := e.rdb.PTTL(e.ctx(), e.key(k)).Result()
		e.must(err)
		if ttl <= 0 || ttl > time.Minute {
			e.Errorf("%s ends in %v, want what it had before", k, ttl)
		}
	}
}

func carefulOnce(e *env) {
	c := e.connect(registry.ConnectRequest{})
	id := protocol.NewEventID()
	for range 3 {
		r := e.careful(id)
		equal(e, "seq", r.Seq, 1)
		equal(e, "epoch", r.Epoch, c.Epoch)
		equal(e, "locations", len(r.Locations), 1)
	}
	equal(e, "end", e.lookup().End, 1)
}

func carefulTrims(e *env) {
	e = e.with(registry.Config{MaxLog: 4, TrimLog: 2})
	e.connect(registry.ConnectRequest{})
	for i := range 10 {
		equal(e, "seq", e.careful(protocol.NewEventID()).Seq, protocol.Seq(i+1))
	}
	u := e.lookup()
	equal(e, "end", u.End, 10)
	if n := u.End - u.Base + 1; n > 4 {
		e.Errorf("log has %d elements, bound is 4", n)
	}
}

// A list that lost its hash grows past the bound: still no log, and no error.
func carefulOfHalfALog(e *env) {
	e = e.with(registry.Config{MaxLog: 3, TrimLog: 2})
	e.connect(registry.ConnectRequest{})
	e.must(e.rdb.Del(e.ctx(), e.key("at")).Err())
	for range 5 {
		equal(e, "seq", e.careful(protocol.NewEventID()).Seq, 0)
	}
}

func carefulPipeline(e *env) {
	e.connect(registry.ConnectRequest{})
	id := protocol.NewEventID()
	p := e.rdb.Pipeline()
	var cmds []*registry.RouteCmd
	for range 3 {
		cmds = append(cmds, e.reg.QueueAppendCarefully(e.ctx(), p, e.user, id))
	}
	_, err := p.Exec(e.ctx())
	e.must(err)
	for _, c := range cmds {
		r, err := c.Result()
		e.must(err)
		equal(e, "seq", r.Seq, 1)
	}
}

func locateAppendsNothing(e *env) {
	at := location("A")
	c := e.connect(registry.ConnectRequest{At: at})
	r := e.one(func(p redis.Pipeliner) *registry.RouteCmd { return e.reg.QueueLocate(e.ctx(), p, e.user) })
	equal(e, "seq", r.Seq, 0)
	equal(e, "epoch", r.Epoch, c.Epoch)
	e.fieldsAre(r.Locations, at)
	equal(e, "end", e.lookup().End, 0)
}

func trimKeepsSeqs(e *env) {
	e = e.with(registry.Config{MaxLog: 10, TrimLog: 5})
	e.connect(registry.ConnectRequest{})
	at := map[protocol.EventID]protocol.Seq{}
	for range 7 {
		ids, seqs := e.append(6)
		for i, id := range ids {
			at[id] = seqs[i]
		}
		e.trim()
	}
	c := e.connect(registry.ConnectRequest{})
	equal(e, "end", c.End(), 42)
	for i, id := range c.IDs {
		equal(e, "seq of an id", c.Base+protocol.Seq(i), at[id])
	}
}

// three users in one pipeline; the keys of the middle one are broken.
func (e *env) threeUsers(what string, queue func(redis.Pipeliner, protocol.UserID) *registry.RouteCmd) {
	e.Helper()
	users := []protocol.UserID{e.user + "-1", e.user, e.user + "-3"}
	for _, u := range users {
		_, err := e.reg.Connect(e.ctx(), u, registry.ConnectRequest{At: location("A")})
		e.must(err)
	}
	e.must(e.rdb.Set(e.ctx(), e.key(what), "no such thing", 0).Err())
	p := e.rdb.Pipeline()
	var cmds []*registry.RouteCmd
	for _, u := range users {
		cmds = append(cmds, queue(p, u))
	}
	_, _ = p.Exec(e.ctx()) // its error is the first of any
	for i, c := range cmds {
		r, err := c.Result()
		if i == 1 {
			equal(e, "error of the broken one", err != nil, true)
			continue
		}
		e.must(err)
		equal(e, "seq of a whole one", r.Seq, 1)
		equal(e, "locations of a whole one", len(r.Locations), 1)
	}
}

func caseB20(e *env) {
	for _, what := range []string{"log", "at"} {
		e.user += "x"
		e.threeUsers(what, func(p redis.Pipeliner, u protocol.UserID) *registry.RouteCmd {
			return e.reg.QueueAppend(e.ctx(), p, u, protocol.NewEventID())
		})
	}
}

func caseB20Careful(e *env) {
	for _, what := range []string{"log", "at"} {
		e.user += "x"
		e.threeUsers(what, func(p redis.Pipeliner, u protocol.UserID) *registry.RouteCmd {
			return e.reg.QueueAppendCarefully(e.ctx(), p, u, protocol.NewEventID())
		})
	}
}

// A relay that lost its partition appends e1 after the new owner's look found
// nothing: the log holds it twice. A resume from the first one says so.
func traceT21(e *env) {
	c := e.connect(registry.ConnectRequest{})
	id := protocol.NewEventID()
	for want := protocol.Seq(1); want <= 2; want++ {
		r := e.one(func(p redis.Pipeliner) *registry.RouteCmd { return e.reg.QueueAppend(e.ctx(), p, e.user, id) })
		equal(e, "seq", r.Seq, want)
	}
	equal(e, "careful seq", e.careful(id).Seq, 1)
	got := e.resume(protocol.Position{Epoch: c.Epoch, Seq: 1, ID: id})
	equal(e, "recovered", got.Recovered, true)
	for seq := protocol.Seq(1); seq <= 2; seq++ {
		at, _ := got.At(seq)
		equal(e, "id that seeds the session", at, id)
		held, err := e.reg.Holds(e.ctx(), e.user, c.Epoch, seq, id)
		e.must(err)
		equal(e, "holding", held, registry.HoldsID)
	}
}

func traceT22(e *env) {
	e.connect(registry.ConnectRequest{})
	const relays, events = 4, 25
	ids := make([]protocol.EventID, events)
	for i := range ids {
		ids[i] = protocol.NewEventID()
	}
	seqs := make([][events]protocol.Seq, relays)
	var wg sync.WaitGroup
	for r := range relays {
		wg.Go(func() {
			for i, id := range ids {
				routed, err := e.reg.AppendCarefully(e.ctx(), e.user, id)
				if err != nil {
					e.Error(err)
				}
				seqs[r][i] = routed.Seq
			}
		})
	}
	wg.Wait()
	equal(e, "end", e.lookup().End, events)
	for r := range relays {
		equal(e, "seqs of every relay", seqs[r], seqs[0])
	}
}

// Whatever is trimmed meanwhile, a careful append of an id that the log holds
// answers the seq that the id has.
func traceT23(e *env) {
	e = e.with(registry.Config{MaxLog: 40, TrimLog: 20})
	e.connect(registry.ConnectRequest{})
	// In rounds, so that neither gets so far ahead that the other's id is trimmed between its two looks.
	for range 60 {
		var round sync.WaitGroup
		for range 2 {
			round.Go(func() { appendTwice(e) })
		}
		round.Wait()
	}
	u := e.lookup()
	equal(e, "end", u.End, 120)
	equal(e, "trimmed", u.Base > 0, true)
}

func appendTwice(e *env) {
	id := protocol.NewEventID()
	first, err := e.reg.AppendCarefully(e.ctx(), e.user, id)
	if err != nil {
		e.Error(err)
		return
	}
	again, err := e.reg.AppendCarefully(e.ctx(), e.user, id)
	if err != nil {
		e.Error(err)
		return
	}
	equal(e, "seq at the second time", again.Seq, first.Seq)
}

// An event that was routed while the user had no log, and is routed again after
// he connected: it is appended once, and no resume takes it for another.
func traceT24(e *env) {
	id := protocol.NewEventID()
	r := e.one(func(p redis.Pipeliner) *registry.RouteCmd { return e.reg.QueueAppend(e.ctx(), p, e.user, id) })
	equal(e, "seq without a log", r.Seq, 0)
	c := e.connect(registry.ConnectRequest{})
	equal(e, "seq after the takeover", e.careful(id).Seq, 1)
	equal(e, "seq after another", e.careful(id).Seq, 1)
	got := e.resume(protocol.Position{Epoch: c.Epoch})
	equal(e, "missed", len(got.After(0)), 1)
}
