package registrytest

import (
	"errors"
	"strings"
	"time"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

var connects = map[string]func(*env){
	"Connect_MakesLog":               connectMakesLog,
	"Connect_AnswersLog":             connectAnswersLog,
	"Connect_SecondSession":          connectSecondSession,
	"Connect_Expiry":                 connectExpiry,
	"Connect_HalfALogIsNone":         connectHalfALog,
	"Connect_ResumeAtSentinel":       resumeAtSentinel,
	"Connect_ResumeAtEverySeq":       resumeAtEverySeq,
	"Connect_ResumeOtherEpoch":       resumeOtherEpoch,
	"Connect_ResumeTrimmed":          resumeTrimmed,
	"Connect_ResumeBeyondEnd":        resumeBeyondEnd,
	"Connect_BreaksOnceInAWhile":     resumeBreaksOnce,
	"Connect_Limit":                  connectLimit,
	"Connect_LimitLeavesNothing":     connectLimitLeavesNothing,
	"Connect_Rehome":                 rehome,
	"Connect_ReplyLost":              connectReplyLost,
	"Connect_StrangeUserIDs":         strangeUserIDs,
	"Connect_DeviceIsBounded":        deviceIsBounded,
	"Connect_WrongType":              connectWrongType,
	"Case_F02_PositionMovesOn":       caseF02,
	"Connect_UnreadableFieldIsNoBar": unreadableField,
}

func connectMakesLog(e *env) {
	at := location("A")
	c := e.connect(registry.ConnectRequest{At: at})
	if _, err := protocol.ParseEpoch(string(c.Epoch)); err != nil {
		e.Error(err)
	}
	equal(e, "recovered", c.Recovered, false)
	equal(e, "base", c.Base, 0)
	equal(e, "end", c.End(), 0)
	equal(e, "end id", c.EndID(), protocol.EventID{})
	equal(e, "length", len(c.IDs), 1)
	equal(e, "acked", c.Acked, 0)
	equal(e, "revoked", c.Revoked.IsZero(), true)
	e.fieldsAre(c.Locations, at)
}

func connectAnswersLog(e *env) {
	first := e.connect(registry.ConnectRequest{})
	ids, seqs := e.append(3)
	c := e.connect(registry.ConnectRequest{})
	equal(e, "epoch", c.Epoch, first.Epoch)
	equal(e, "end", c.End(), 3)
	equal(e, "end id", c.EndID(), ids[2])
	for i, seq := range seqs {
		id, ok := c.At(seq)
		equal(e, "held", ok, true)
		equal(e, "id", id, ids[i])
	}
	_, ok := c.At(4)
	equal(e, "held past the end", ok, false)
	equal(e, "after 1", len(c.After(1)), 2)
	equal(e, "after the end", len(c.After(3)), 0)
	equal(e, "after more than the end", len(c.After(9)), 0)
	equal(e, "after less than the base", len(c.After(-9)), 4)
}

func connectSecondSession(e *env) {
	a, b := location("A"), location("B")
	b.Device = ""
	first := e.connect(registry.ConnectRequest{At: a})
	second := e.connect(registry.ConnectRequest{At: b})
	equal(e, "epoch", second.Epoch, first.Epoch)
	e.fieldsAre(second.Locations, a, b)
}

func connectExpiry(e *env) {
	const window = time.Minute
	e = e.with(registry.Config{ReplayWindow: window})
	e.connect(registry.ConnectRequest{})
	for _, key := range []string{"at", "log"} {
		ttl, err := e.rdb.PTTL(e.ctx(), e.key(key)).Result()
		e.must(err)
		if ttl <= window/2 || ttl > window {
			e.Errorf("%s ends in %v, want %v", key, ttl, window)
		}
	}
}

func connectHalfALog(e *env) {
	for _, what := range []string{"log", "@epoch", "@base", "at"} {
		at := location("A")
		before := e.connect(registry.ConnectRequest{At: at})
		ids, _ := e.append(1)
		e.must(e.reg.Acked(e.ctx(), e.user, protocol.Position{Epoch: before.Epoch, Seq: 1, ID: ids[0]}))
		if strings.HasPrefix(what, "@") {
			e.must(e.rdb.HDel(e.ctx(), e.key("at"), what).Err())
		} else {
			e.must(e.rdb.Del(e.ctx(), e.key(what)).Err())
		}
		_, seqs := e.append(1)
		equal(e, "seq without "+what, seqs[0], 0)
		equal(e, "careful seq without "+what, e.careful(protocol.NewEventID()).Seq, 0)
		equal(e, "known without "+what, e.lookup().Known, false)

		after := e.resume(protocol.Position{Epoch: before.Epoch, Seq: 1, ID: ids[0]})
		equal(e, "recovered without "+what, after.Recovered, false)
		equal(e, "same epoch without "+what, after.Epoch == before.Epoch, false)
		equal(e, "end without "+what, after.End(), 0)
		equal(e, "acked without "+what, after.Acked, 0)
	}
}

func resumeAtSentinel(e *env) {
	first := e.connect(registry.ConnectRequest{})
	c := e.resume(protocol.Position{Epoch: first.Epoch})
	equal(e, "recovered", c.Recovered, true)
	e.append(2)
	c = e.resume(protocol.Position{Epoch: first.Epoch})
	equal(e, "recovered", c.Recovered, true)
	equal(e, "missed", len(c.After(0)), 2)
}

func resumeAtEverySeq(e *env) {
	first := e.connect(registry.ConnectRequest{})
	ids, _ := e.append(5)
	for i, id := range ids {
		seq := protocol.Seq(i + 1)
		c := e.resume(protocol.Position{Epoch: first.Epoch, Seq: seq, ID: id})
		equal(e, "recovered", c.Recovered, true)
		equal(e, "epoch", c.Epoch, first.Epoch)
		equal(e, "missed", len(c.After(seq)), len(ids)-i-1)
	}
}

func resumeOtherEpoch(e *env) {
	first := e.connect(registry.ConnectRequest{})
	ids, _ := e.append(1)
	c := e.resume(protocol.Position{Epoch: protocol.NewEpoch(), Seq: 1, ID: ids[0]})
	equal(e, "recovered", c.Recovered, false)
	equal(e, "epoch", c.Epoch, first.Epoch)
}

func resumeTrimmed(e *env) {
	e = e.with(registry.Config{MaxLog: 6, TrimLog: 4})
	first := e.connect(registry.ConnectRequest{})
	ids, _ := e.append(8) // with the sentinel nine: seqs 5 to 8 stay
	e.trim()
	for i, id := range ids {
		seq := protocol.Seq(i + 1)
		c := e.resume(protocol.Position{Epoch: first.Epoch, Seq: seq, ID: id})
		equal(e, "base", c.Base, 5)
		equal(e, "epoch", c.Epoch, first.Epoch)
		equal(e, "recovered", c.Recovered, seq >= 5)
	}
	equal(e, "recovered at the sentinel", e.resume(protocol.Position{Epoch: first.Epoch}).Recovered, false)
}

func resumeBeyondEnd(e *env) {
	first := e.connect(registry.ConnectRequest{})
	e.append(2)
	c := e.resume(protocol.Position{Epoch: first.Epoch, Seq: 3, ID: protocol.NewEventID()})
	equal(e, "recovered", c.Recovered, false)
	equal(e, "same epoch", c.Epoch == first.Epoch, false)
	equal(e, "end", c.End(), 0)
	equal(e, "locations", len(c.Locations), 2)
}

func resumeBreaksOnce(e *env) {
	stranger := func(c registry.Connected) protocol.Position {
		return protocol.Position{Epoch: c.Epoch, Seq: 7, ID: protocol.NewEventID()}
	}
	first := e.connect(registry.ConnectRequest{})
	second := e.resume(stranger(first))
	third := e.resume(stranger(second))
	equal(e, "recovered", third.Recovered, false)
	equal(e, "epoch within the pause", third.Epoch, second.Epoch)

	e = e.with(registry.Config{BreakPause: -1})
	fourth := e.resume(stranger(third))
	equal(e, "same epoch after the pause", fourth.Epoch == third.Epoch, false)
}

func connectLimit(e *env) {
	a, b := location("A"), location("B")
	e.connect(registry.ConnectRequest{At: a, Limit: 2})
	e.connect(registry.ConnectRequest{At: b, Limit: 2})
	_, err := e.reg.Connect(e.ctx(), e.user, registry.ConnectRequest{At: location("C"), Limit: 2})
	var full *registry.TooManySessionsError
	if !errors.As(err, &full) {
		e.Fatalf("third session: %v, want TooManySessionsError", err)
	}
	e.fieldsAre(full.Locations, a, b)

	e.connect(registry.ConnectRequest{At: b, Limit: 2}) // itself again: no third
	c := location("C")
	got := e.connect(registry.ConnectRequest{At: c, Limit: 2, Replaces: a.Field})
	e.fieldsAre(got.Locations, b, c)
	e.must(e.reg.Leave(e.ctx(), e.user, b.Field))
	e.connect(registry.ConnectRequest{At: location("D"), Limit: 2})
}

func connectLimitLeavesNothing(e *env) {
	a := location("A")
	e.connect(registry.ConnectRequest{At: a})
	before := e.dump()
	_, err := e.reg.Connect(e.ctx(), e.user, registry.ConnectRequest{
		At: location("B"), Limit: 1, Resume: &protocol.Position{Epoch: e.lookup().Epoch, Seq: 9},
	})
	if err == nil {
		e.Fatal("second session of one was let in")
	}
	after := e.dump()
	equal(e, "fields", len(after.hash), len(before.hash))
	equal(e, "epoch", after.hash["@epoch"], before.hash["@epoch"])
}

func rehome(e *env) {
	a, b, other := location("A"), location("A"), location("B")
	first := e.connect(registry.ConnectRequest{At: a})
	e.connect(registry.ConnectRequest{At: other})
	ids, _ := e.append(2)
	c := e.connect(registry.ConnectRequest{
		At: b, Replaces: a.Field, Limit: 2, Resume: &protocol.Position{Epoch: first.Epoch, Seq: 1, ID: ids[0]},
	})
	equal(e, "recovered", c.Recovered, true)
	e.fieldsAre(c.Locations, b, other)
}

func connectReplyLost(e *env) {
	at := location("A")
	first := e.connect(registry.ConnectRequest{At: at, Limit: 1})
	again := e.connect(registry.ConnectRequest{At: at, Limit: 1, Resume: &protocol.Position{Epoch: first.Epoch}})
	equal(e, "epoch", again.Epoch, first.Epoch)
	equal(e, "recovered", again.Recovered, true)
	e.fieldsAre(again.Locations, at)
}

func strangeUserIDs(e *env) {
	salt := string(e.user)
	users := []protocol.UserID{"{", "}", "{}", "%7B", "%", "a}:log", "ü😀", " ", "a\u0085b", "{a}{b}", "at", "*", "\\"}
	epochs := map[protocol.Epoch]protocol.UserID{}
	for _, u := range users {
		u = protocol.UserID(string(u) + salt)
		c, err := e.reg.Connect(e.ctx(), u, registry.ConnectRequest{At: location("A")})
		e.must(err)
		if other, taken := epochs[c.Epoch]; taken {
			e.Errorf("%q and %q share a log", u, other)
		}
		epochs[c.Epoch] = u
	}
	n, err := e.rdb.Exists(e.ctx(), "user:{%7B"+salt+"}:log", "user:{%7D"+salt+"}:at", "user:{%257B"+salt+"}:at").Result()
	e.must(err)
	equal(e, "escaped keys", n, 3)
}

func deviceIsBounded(e *env) {
	at := location("A")
	at.Device = strings.Repeat("ü", 17) // 34 bytes
	c := e.connect(registry.ConnectRequest{At: at})
	equal(e, "device", c.Locations[0].Device, strings.Repeat("ü", 16))
	at.Device = "x" + strings.Repeat("ü", 17) // the bound falls into a character
	c = e.connect(registry.ConnectRequest{At: at})
	equal(e, "device", c.Locations[0].Device, "x"+strings.Repeat("ü", 15))
}

func connectWrongType(e *env) {
	e.must(e.rdb.Set(e.ctx(), e.key("log"), "no list", time.Minute).Err())
	if _, err := e.reg.Connect(e.ctx(), e.user, registry.ConnectRequest{At: location("A")}); err == nil {
		e.Error("connected to a log that is a string")
	}
}

func caseF02(e *env) {
	first := e.connect(registry.ConnectRequest{})
	position := protocol.Position{Epoch: first.Epoch}
	e.append(3)
	for _, want := range []int{3, 0, 0} {
		c := e.resume(position)
		equal(e, "recovered", c.Recovered, true)
		equal(e, "replay", len(c.After(position.Seq)), want)
		position = protocol.Position{Epoch: c.Epoch, Seq: c.End(), ID: c.EndID()}
	}
}

func unreadableField(e *env) {
	a := location("A")
	e.connect(registry.ConnectRequest{At: a})
	e.must(e.rdb.HSet(e.ctx(), e.key("at"), "nonsense", "x", "B-1/s", "yesterday").Err())
	odd := registry.Location{Field: registry.Field{Instance: "B-1", Session: "s"}}
	e.fieldsAre(e.lookup().Locations, a, odd)
}
