package heartbeat_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// Starts, beats, pauses, claims, fences and a Redis that goes back, in any order,
// against a model that knows all lease ends.
func TestLeasesAgainstAModel(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		b := newBundle(t, s)
		// Hours, so that the clock on the wall plays no part: time passes only by pass.
		b.leases = heartbeat.New(b.rdb, key, heartbeat.Config{Lease: modelLease, Every: 5 * time.Millisecond})
		rapid.Check(t, func(rt *rapid.T) {
			must(rt, b.rdb.Del(context.Background(), key).Err())
			m := &model{bundle: b, procs: map[protocol.InstanceID]*proc{}}
			rt.Repeat(map[string]func(*rapid.T){
				"start": m.start, "beat": m.beat, "pass": m.pass, "claim": m.claim, "fence": m.fence,
				"remove": m.remove, "save": m.save, "restore": m.restore, "look": m.look,
			})
		})
	})
}

const modelLease = 6 * time.Hour

// model makes time pass by moving all lease ends towards the past, those that
// instances and reapers remember too.
type model struct {
	bundle
	procs map[protocol.InstanceID]*proc // of all instances whose process lives
	order []protocol.InstanceID         // theirs, and of those before, by their making: a failure can be run again
	seen  []heartbeat.Lease             // what the reaper saw last
	saved []redis.Z                     // what Redis may go back to
}

type proc struct {
	last int64
	lost bool
}

var ctx = context.Background() // a rapid.T's context ends with its check, a model's calls don't

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (m *model) scores(t *rapid.T) map[protocol.InstanceID]int64 {
	all, err := m.rdb.ZRangeWithScores(ctx, key, 0, -1).Result()
	must(t, err)
	scores := map[protocol.InstanceID]int64{}
	for _, z := range all {
		scores[protocol.InstanceID(z.Member.(string))] = int64(z.Score)
	}
	return scores
}

func ended(score int64) bool { return score <= time.Now().UnixMilli() }

func name(t *rapid.T) string { return rapid.SampledFrom([]string{"a", "b", "a-b"}).Draw(t, "name") }

// one draws an instance whose process lives, lost or not.
func (m *model) one(t *rapid.T, lost bool) protocol.InstanceID {
	var ids []protocol.InstanceID
	for _, id := range m.order {
		if p := m.procs[id]; p != nil && p.lost == lost {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		t.Skip("none")
	}
	return ids[rapid.IntRange(0, len(ids)-1).Draw(t, "instance")]
}

func (m *model) add(id protocol.InstanceID, value int64) {
	m.procs[id] = &proc{last: value}
	m.order = append(m.order, id)
}

func (m *model) start(t *rapid.T) {
	name := name(t)
	before := m.scores(t)
	id, value, err := m.leases.Register(ctx, name)
	must(t, err)
	m.add(id, value)
	after := m.scores(t)
	for other, score := range before {
		want := score
		if other.Name() == name {
			want = 0
		}
		if after[other] != want {
			t.Fatalf("a start of %s took %s from %d to %d", name, other, score, after[other])
		}
	}
}

func (m *model) beat(t *rapid.T) {
	id := m.one(t, false)
	p := m.procs[id]
	score, there := m.scores(t)[id]
	value, err := m.leases.Beat(ctx, id, p.last)
	if lost := !there || score == 0 || score < p.last; lost != errors.Is(err, heartbeat.ErrLost) {
		t.Fatalf("beat of %s at %d (%v), last %d: %v", id, score, there, p.last, err)
	}
	if err == nil {
		p.last = value
	} else {
		p.lost = true
	}
}

func (m *model) pass(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{time.Hour, 3 * time.Hour, modelLease}).Draw(t, "time").Milliseconds()
	shift := func(score int64) int64 {
		if score == 0 {
			return 0
		}
		return score - d
	}
	for id, score := range m.scores(t) {
		must(t, m.rdb.ZAdd(ctx, key, redis.Z{Score: float64(shift(score)), Member: string(id)}).Err())
	}
	for _, p := range m.procs {
		p.last = shift(p.last)
	}
	for i := range m.seen {
		m.seen[i].Score = shift(m.seen[i].Score)
	}
	for i := range m.saved {
		m.saved[i].Score = float64(shift(int64(m.saved[i].Score)))
	}
}

func (m *model) look(t *rapid.T) {
	seen, err := m.leases.List(ctx)
	must(t, err)
	scores := m.scores(t)
	if len(seen) != len(scores) {
		t.Fatalf("listed %d of %d", len(seen), len(scores))
	}
	for _, l := range seen {
		if l.Score != scores[l.ID] || l.Running != !ended(l.Score) {
			t.Fatalf("listed %+v, stands at %d", l, scores[l.ID])
		}
	}
	m.seen = seen
}

func (m *model) claim(t *rapid.T) {
	if len(m.seen) == 0 {
		t.Skip("nothing seen")
	}
	l := rapid.SampledFrom(m.seen).Draw(t, "lease")
	score, there := m.scores(t)[l.ID]
	ok, err := m.leases.Claim(ctx, l.ID, l.Score)
	must(t, err)
	if want := there && score == l.Score && ended(score); ok != want {
		t.Fatalf("claim of %s seen at %d, which stands at %d: %v", l.ID, l.Score, score, ok)
	}
	if after := m.scores(t)[l.ID]; ok && after != 0 || !ok && after != score {
		t.Fatalf("claim %v took %s from %d to %d", ok, l.ID, score, after)
	}
}

func (m *model) fence(t *rapid.T) {
	old := m.one(t, true)
	waits := false
	for other, score := range m.scores(t) {
		waits = waits || other != old && other.Name() == old.Name() && !ended(score)
	}
	limit := time.Minute
	if waits {
		limit = 15 * time.Millisecond
	}
	try, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	before := m.scores(t)
	id, value, err := m.leases.Rejoin(try, old.Name(), old)
	after := m.scores(t)
	if waits {
		if err == nil || len(after) != len(before) {
			t.Fatalf("%s did not wait: %v", old, err)
		}
		return
	}
	must(t, err)
	delete(m.procs, old)
	m.add(id, value)
	for other, score := range after {
		if other.Name() == old.Name() && other != old && other != id && score != 0 {
			t.Fatalf("%s rejoined beside %s at %d", id, other, score)
		}
	}
	if after[old] != before[old] {
		t.Fatalf("the own old lease went from %d to %d", before[old], after[old])
	}
	must(t, m.leases.End(ctx, old))
}

func (m *model) remove(t *rapid.T) {
	for id, score := range m.scores(t) {
		if score == 0 {
			must(t, m.leases.Remove(ctx, id))
			return
		}
	}
}

func (m *model) save(t *rapid.T) {
	var err error
	m.saved, err = m.rdb.ZRangeWithScores(ctx, key, 0, -1).Result()
	must(t, err)
}

func (m *model) restore(t *rapid.T) {
	must(t, m.rdb.Del(ctx, key).Err())
	if len(m.saved) > 0 {
		must(t, m.rdb.ZAdd(ctx, key, m.saved...).Err())
	}
}
