package relay_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/relay"
)

// A01, A02: the oplog has rolled past the marker while no relay ran. Everything
// committed meanwhile is delivered in commit order, history lost is counted once,
// and the stream is not opened in a hot loop.
func TestCase_A01_A02_HistoryLostWhileNoRelayRan(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, testkit.EmbeddedRedis(t), smallOplog(t, 10))
	a := w.instance("a")
	a.connect("u")
	first := w.relay(quick("r1")).ready()
	w.publish(event(0, "u"))
	a.await(5*time.Second, "u", 1)
	first.stop()
	for n := 1; n <= 60; n++ {
		w.publish(event(n, "u"))
	}
	store := &faultyStore{Outbox: relay.Over(w.store)}
	cfg, reg := quick("r2"), prometheus.NewRegistry()
	cfg.Metrics = reg
	w.relayOver(cfg, store).ready()
	w.publish(event(61, "u"))
	got := a.await(5*time.Second, "u", 62)
	checkOrder(t, got, 0, 61)
	if n := store.opened.Load(); n >= 5 {
		t.Errorf("stream was opened %d times", n)
	}
	if n := metric(t, reg, "lastmile_relay_history_lost_total"); n != 1 {
		t.Errorf("history lost counted %v times, want 1", n)
	}
}

func metric(t testing.TB, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// Names and help of metrics keep to the conventions.
func TestMetrics_KeepToTheConventions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.EmbeddedRedis(t))
	cfg, reg := quick("r"), prometheus.NewRegistry()
	cfg.Metrics = reg
	w.relay(cfg).ready()
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// A09: the relay idles for several times its poll's deadline.
func TestCase_A09_IdleStreamStaysAlive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.EmbeddedRedis(t))
	a := w.instance("a")
	a.connect("u")
	store := &faultyStore{Outbox: relay.Over(w.store)}
	r := w.relayOver(quick("r"), store).ready()
	before := position(r)
	eventually(t, 20*time.Second, "three polls pass", threePolls())
	w.publish(event(1, "u"))
	a.await(2*time.Second, "u", 1)
	if n := store.opened.Load(); n > 2 { // the scan's and the one that is followed
		t.Errorf("stream was opened %d times", n)
	}
	eventually(t, 5*time.Second, "the place moves", func() bool { return position(r) != before })
}

// threePolls is true after three times the await time of the tests' stores.
func threePolls() func() bool {
	began := time.Now()
	return func() bool { return time.Since(began) > 3*200*time.Millisecond }
}

func position(r *runningRelay) string { return r.Status().Partitions[0].Position }

// A18: a burst of 5,000 events, every write of a checkpoint 20 ms late.
func TestCase_A18_CheckpointPerEventThrottles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.EmbeddedRedis(t))
	a := w.instance("a")
	all := users(50)
	a.connect(all...)
	store := &faultyStore{Outbox: relay.Over(w.store), checkpointDelay: 20 * time.Millisecond}
	w.relayOver(quick("r"), store).ready()
	before := store.checkpoints.Load()
	events := make([]*protocol.Event, 500)
	for burst := range 10 {
		for i := range events {
			events[i] = event(burst*500+i, all[i%50])
		}
		w.publishTogether(events...)
	}
	for _, u := range all {
		checkSeqs(t, a.await(30*time.Second, u, 100))
	}
	if n := store.checkpoints.Load() - before; n > 200 {
		t.Errorf("%d writes of checkpoints", n)
	}
}

// A21: 400 connected users, one change stream, and no floor under the latency.
func TestCase_A21_OneStreamWhateverTheUsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.EmbeddedRedis(t))
	a := w.instance("a")
	all := users(400)
	a.connect(all...)
	store := &faultyStore{Outbox: relay.Over(w.store)}
	w.relayOver(quick("r"), store).ready()
	var took []time.Duration
	for n := range 60 {
		u := all[n*6]
		began := time.Now()
		w.publish(event(n, u))
		a.await(5*time.Second, u, 1)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	limit := 200 * time.Millisecond
	if raceEnabled { // everything is slow then: no floor, at least
		limit = 3 * time.Second
	}
	if p95 := took[len(took)*95/100]; p95 > limit {
		t.Errorf("95th percentile from commit to inbox: %v", p95)
	}
	if n := store.mostOpen.Load(); n != 1 {
		t.Errorf("%d streams open at a time", n)
	}
}

// E12: the scan outlasts the oplog while writes continue; the relay gets through
// nevertheless, and every event is delivered.
func TestCase_E12_CatchUpOutlastsTheOplog(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, testkit.EmbeddedRedis(t), smallOplog(t, 20))
	a := w.instance("a")
	a.connect("u")
	for n := range 30 {
		w.publish(event(n, "u"))
	}
	store := &faultyStore{Outbox: relay.Over(w.store)}
	var scans atomic.Int64
	next := 30
	store.scanning(func(batch int) error {
		if batch > 0 || scans.Add(1) > 2 {
			return nil
		}
		for range 40 { // more than the oplog holds, twice
			w.publish(event(next, "u"))
			next++
		}
		return nil
	})
	w.relayOver(quick("r"), store).ready()
	w.publish(event(next, "u"))
	got := a.await(20*time.Second, "u", next+1)
	if len(got) != next+1 {
		t.Fatalf("%d events, want %d", len(got), next+1)
	}
	if scans.Load() < 2 {
		t.Errorf("%d scans: the first token was not lost, so nothing was tested", scans.Load())
	}
}

// T49: the relay dies in the middle of a scan, after its stream's first token was
// taken. The next owner scans again from the same place.
func TestTrace_T49_DiesInTheMiddleOfAScan(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		w := newWorld(t, s)
		a := w.instance("a")
		a.connect("u")
		const many = 1200 // more than two batches of a scan
		for from := 0; from < many; from += 400 {
			events := make([]*protocol.Event, 400)
			for i := range events {
				events[i] = event(from+i, "u")
				events[i].Time = time.Now().Add(time.Duration(from+i-many) * time.Millisecond)
			}
			w.publishTogether(events...)
		}
		f, store := &fault{}, &faultyStore{Outbox: relay.Over(w.store)}
		store.scanning(func(batch int) error {
			if batch == 1 {
				f.dead.Store(true)
			}
			return nil
		})
		w.relayOver(quick("r1"), store, f.hook)
		eventually(t, 10*time.Second, "the first relay dies", f.dead.Load)
		w.relay(quick("r2")).ready()
		checkOrder(t, a.await(20*time.Second, "u", many), 0, many-1)
	})
}

// Documents that are no events never hold up what comes behind them.
func TestRoute_DocumentsThatAreNoEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.EmbeddedRedis(t))
	a := w.instance("a")
	a.connect("u")
	w.relay(quick("r")).ready()
	coll := w.rawOutbox()
	for i := range 20 {
		if _, err := coll.InsertOne(t.Context(), map[string]any{"_id": fmt.Sprintf("junk-%d", i), "to": i}); err != nil {
			t.Fatal(err)
		}
	}
	w.publish(event(1, "u"))
	a.await(2*time.Second, "u", 1)
	eventually(t, 5*time.Second, "20 dead documents", func() bool { return w.dead() == 20 })
}

// MongoDB was replaced by another one while Redis was not: the marker means nothing
// there. What the new one holds is found by a scan.
func TestTake_MarkerOfAnotherMongo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testkit.EmbeddedRedis(t))
	a := w.instance("a")
	a.connect("u")
	first := w.relay(quick("r1")).ready()
	w.publish(event(1, "u"))
	a.await(10*time.Second, "u", 1)
	first.stop()
	other := newWorldOn(t, w.redis, smallOplog(t, 1000))
	other.publish(event(2, "u"))
	other.relay(quick("r2")).ready()
	other.publish(event(3, "u"))
	got := a.await(15*time.Second, "u", 3)
	checkOrder(t, got, 1, 3)
	checkSeqs(t, got)
}
