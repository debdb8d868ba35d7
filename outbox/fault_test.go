package outbox_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/outbox/outboxtest"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// setup is an outbox whose store reaches its server by way of a proxy; the bundle's own client goes there directly.
func setup(t *testing.T, cfg outbox.Config) (*outboxtest.Bundle, *outboxtest.Proxy) {
	t.Helper()
	url := newMongo(t)
	proxy := outboxtest.NewProxy(t, url)
	if cfg.MaxBackoff == 0 {
		cfg.MaxBackoff = 200 * time.Millisecond
	}
	if cfg.AwaitTime == 0 {
		cfg.AwaitTime = outboxtest.AwaitTime
	}
	// A made-up NotWritablePrimary makes the driver wait for the server's next sign of life.
	b := outboxtest.Setup(t, proxy.URL(url)+"&heartbeatFrequencyMS=500", cfg)
	return b, proxy
}

// expect publishes past whatever broke the stream, and reads it.
func expect(b *outboxtest.Bundle, st *outbox.Stream) {
	b.Helper()
	ids := b.Publish(2)
	if got := outboxtest.IDs(b.Read(st, 2)); !slices.Equal(got, ids) {
		b.Errorf("got %v, wanted %v", got, ids)
	}
	b.Quiet(st)
	if err := st.Trouble(); err != nil {
		b.Errorf("delivering, but in trouble: %v", err)
	}
}

func TestStream_SurvivesErrorsOfTheOpening(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{})
	st := b.Watch(outbox.WatchOptions{})
	expect(b, st)
	var opened atomic.Int32
	proxy.Set(func(c outboxtest.Command) outboxtest.Verdict {
		switch {
		case c.Name == "getMore" && opened.Load() == 0:
			return outboxtest.Verdict{Reply: failure(43, "CursorNotFound")}
		case c.OpensStream() && opened.Add(1) <= 3:
			return outboxtest.Verdict{Reply: failure(13435, "NotPrimaryNoSecondaryOk")}
		}
		return outboxtest.Verdict{}
	})
	expect(b, st)
}

func failure(code int32, name string) bson.D {
	return bson.D{{Key: "ok", Value: 0.0}, {Key: "errmsg", Value: name}, {Key: "code", Value: code}, {Key: "codeName", Value: name}}
}

// A11: the server is away for longer than any single attempt takes.
func TestCase_A11_ComesBackAfterAnOutage(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{ConnectTimeout: 300 * time.Millisecond})
	st := b.Watch(outbox.WatchOptions{})
	expect(b, st)
	proxy.Down()
	for began := time.Now(); time.Since(began) < 1500*time.Millisecond; {
		changes, err := st.Next(b.Ctx)
		if len(changes) > 0 || err != nil {
			t.Fatalf("down, but %d changes, %v", len(changes), err)
		}
	}
	if st.Trouble() == nil {
		t.Error("down, and no trouble")
	}
	proxy.Up()
	for st.Trouble() != nil {
		if _, err := st.Next(b.Ctx); err != nil {
			t.Fatal(err)
		}
	}
	expect(b, st)
}

// A12: an administrator kills the cursor.
func TestCase_A12_CursorIsKilled(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{})
	var cursor atomic.Int64
	proxy.Set(func(c outboxtest.Command) outboxtest.Verdict {
		if c.Name == "getMore" {
			cursor.Store(c.Body.Lookup("getMore").AsInt64())
		}
		return outboxtest.Verdict{}
	})
	st := b.Watch(outbox.WatchOptions{})
	expect(b, st)
	b.Must(b.DB.RunCommand(b.Ctx, bson.D{{Key: "killCursors", Value: b.Events.Name()}, {Key: "cursors", Value: bson.A{cursor.Load()}}}).Err())
	expect(b, st)
}

func TestStream_SurvivesACutConnection(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{})
	st := b.Watch(outbox.WatchOptions{})
	for range 3 {
		expect(b, st)
		proxy.Cut()
	}
	expect(b, st)
}

func counted(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	n, err := testutil.GatherAndCount(reg, name)
	if err != nil || n != 1 {
		t.Fatalf("%d metrics %s, %v", n, name, err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}

// A01, A02, T64: the oplog overtakes a token, and an open cursor. What was written meanwhile is in the scan.
func TestCase_A01_HistoryIsLostAndScanned(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		name := "closed stream"
		if open {
			name = "open stream"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := outboxtest.Setup(t, newMongoWith(t, embedded.MongoConfig{OplogSize: 10}), outbox.Config{})
			st := b.Watch(outbox.WatchOptions{})
			first := b.Publish(1)
			b.Read(st, 1)
			token, at := st.Place()
			if !open {
				b.Must(st.Close(b.Ctx))
			}
			missed := b.Publish(60)
			if !open {
				_, err := b.Store.Watch(b.Ctx, outbox.WatchOptions{After: token, At: at.Timestamp, Index: at.Index})
				if !errors.Is(err, outbox.ErrHistoryLost) || errors.Is(err, outbox.ErrOtherCollection) {
					t.Fatalf("got %v", err)
				}
			} else if _, err := readToError(b, st); !errors.Is(err, outbox.ErrHistoryLost) {
				t.Fatalf("got %v", err)
			}
			fresh := b.Watch(outbox.WatchOptions{})
			scanned := outboxtest.IDs(scan(b, time.Unix(int64(at.T), 0).Add(-time.Minute)))
			if !slices.Equal(scanned, append(first, missed...)) {
				t.Errorf("the scan has %d events, wanted %d in their order", len(scanned), 1+len(missed))
			}
			expect(b, fresh)
		})
	}
}

func readToError(b *outboxtest.Bundle, st *outbox.Stream) (changes []outbox.Change, err error) {
	for end := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(end); {
		var more []outbox.Change
		more, err = st.Next(b.Ctx)
		changes = append(changes, more...)
	}
	return changes, err
}

// T63, while a stream is open: the server that answers is an hour back.
func TestTrace_T63_ServerGoesBackUnderAnOpenStream(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{})
	st := b.Watch(outbox.WatchOptions{})
	expect(b, st)
	_, at := st.Place()
	back := bson.Timestamp{T: at.T - 3600, I: 1}
	proxy.Set(func(c outboxtest.Command) outboxtest.Verdict {
		if c.Name != "getMore" && !c.OpensStream() {
			return outboxtest.Verdict{}
		}
		return outboxtest.Verdict{Edit: func(reply bson.Raw) bson.Raw {
			var doc bson.D
			if err := bson.Unmarshal(reply, &doc); err != nil {
				t.Error(err)
			}
			for i := range doc {
				if doc[i].Key == "operationTime" {
					doc[i].Value = back
				}
			}
			raw, err := bson.Marshal(doc)
			if err != nil {
				t.Error(err)
			}
			return raw
		}}
	})
	if _, err := readToError(b, st); !errors.Is(err, outbox.ErrHistoryLost) || !strings.Contains(err.Error(), "backup") {
		t.Errorf("got %v", err)
	}
}

// T65: 10334 at every opening, until the filter is on; and again when the next one comes.
func TestTrace_T65_EventsTooLargeForTheStream(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{})
	st := b.Watch(outbox.WatchOptions{})
	expect(b, st)
	for round := range 3 {
		token, at := st.Place()
		_, err := b.Events.InsertOne(b.Ctx, bson.D{{Key: "_id", Value: strings.Repeat("i", 2000+round)}})
		b.Must(err)
		proxy.Set(tooLargeUnlessFiltered())
		behind := b.Publish(1)
		checkPastGiant(b, st, behind)
		proxy.Set(tooLargeUnlessFiltered())
		checkPastGiant(b, b.Watch(outbox.WatchOptions{After: token, At: at.Timestamp, Index: at.Index}), behind)
		for _, c := range scan(b, time.Time{}) {
			if c.Fault != nil {
				b.Must(b.Store.Bury(b.Ctx, c, c.Fault.Error()))
			}
		}
	}
}

// checkPastGiant reads the one fault and the events behind it.
func checkPastGiant(b *outboxtest.Bundle, st *outbox.Stream, behind []protocol.EventID) {
	b.Helper()
	var events []protocol.EventID
	faults := 0
	for end := time.Now().Add(10 * time.Second); faults == 0 && time.Now().Before(end); {
		changes, err := st.Next(b.Ctx)
		b.Must(err)
		for _, c := range changes {
			if c.Fault != nil {
				faults++
			} else {
				events = append(events, c.Event.ID)
			}
		}
	}
	if faults != 1 || !slices.Equal(events, behind) {
		b.Errorf("%d faults, events %v, wanted %v; trouble: %v", faults, events, behind, st.Trouble())
	}
}

// tooLargeUnlessFiltered answers 10334 once a stream without the filter comes to the large document.
func tooLargeUnlessFiltered() outboxtest.Rule {
	var passed atomic.Int32
	return func(c outboxtest.Command) outboxtest.Verdict {
		switch {
		case c.OpensStream() && strings.Contains(string(c.Body), "$bsonSize"):
			passed.Add(1)
		case c.OpensStream() && passed.Load() == 0, c.Name == "getMore" && passed.Load() == 0:
			return outboxtest.Verdict{Reply: failure(10334, "BSONObjectTooLarge")}
		}
		return outboxtest.Verdict{}
	}
}

func scan(b *outboxtest.Bundle, from time.Time) []outbox.Change {
	b.Helper()
	var all []outbox.Change
	b.Must(b.Store.Scan(b.Ctx, from, 0, 1, collect(&all)))
	return all
}
