package outbox_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/outbox/outboxtest"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// F11: the server's confirmation is lost; the write is there once, and Publish knows.
func TestCase_F11_ConfirmationIsLost(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"insert", "commitTransaction"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			b, proxy := setup(t, outbox.Config{})
			st := b.Watch(outbox.WatchOptions{})
			var lost atomic.Int32
			proxy.Set(func(c outboxtest.Command) outboxtest.Verdict {
				if c.Name == command && lost.Add(1) == 1 {
					return outboxtest.Verdict{Cut: true, Late: true}
				}
				return outboxtest.Verdict{}
			})
			e := outboxtest.Event(1)
			batch := []*protocol.Event{e}
			if command == "commitTransaction" {
				batch = append(batch, outboxtest.Event(2))
			}
			b.Must(b.Store.Publish(b.Ctx, batch...))
			if lost.Load() < 2 {
				t.Errorf("%s was sent %d times: nothing was lost", command, lost.Load())
			}
			b.Must(b.Store.Publish(b.Ctx, e)) // the sender's own resend
			b.Read(st, len(batch))
			b.Quiet(st)
		})
	}
}

// An application's own unique index is broken by its own fault: that is no duplicate event.
func TestPublish_OtherDuplicatesAreErrors(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{})
	var insert atomic.Value
	proxy.Set(func(c outboxtest.Command) outboxtest.Verdict {
		if c.Name != "insert" {
			return outboxtest.Verdict{}
		}
		return outboxtest.Verdict{Reply: bson.D{{Key: "ok", Value: 1.0}, {Key: "n", Value: int32(0)}, {Key: "writeErrors", Value: bson.A{insert.Load().(bson.D)}}}}
	})
	for _, f := range []struct {
		write bson.D
		sound bool
	}{
		{bson.D{{Key: "keyPattern", Value: bson.D{{Key: "_id", Value: 1}}}}, true},
		{bson.D{{Key: "keyPattern", Value: bson.D{{Key: "subject", Value: 1}}}}, false},
		{bson.D{{Key: "keyPattern", Value: bson.D{{Key: "_id", Value: 1}, {Key: "x", Value: 1}}}}, false},
		{bson.D{{Key: "errmsg", Value: "E11000 duplicate key error collection: x.outbox index: _id_ dup key: {}"}}, true},
		{bson.D{{Key: "errmsg", Value: "E11000 duplicate key error collection: x.outbox index: key_1 dup key: { _id_ }"}}, false},
	} {
		insert.Store(append(bson.D{{Key: "index", Value: int32(0)}, {Key: "code", Value: int32(11000)}}, f.write...))
		if err := b.Store.Publish(b.Ctx, outboxtest.Event(1)); (err == nil) != f.sound {
			t.Errorf("%v: %v", f.write, err)
		}
	}
}

func BenchmarkPublish(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("%d at once", n), func(b *testing.B) {
			store, ctx := benchStore(b)
			for i := 0; b.Loop(); i += n {
				events := events(n)
				if err := store.Publish(ctx, events...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkCommitToChange is the time from Publish's return to the change.
func BenchmarkCommitToChange(b *testing.B) {
	store, ctx := benchStore(b)
	st, err := store.Watch(ctx, outbox.WatchOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close(ctx)
	var total time.Duration
	for b.Loop() {
		if err := store.Publish(ctx, events(1)...); err != nil {
			b.Fatal(err)
		}
		committed := time.Now()
		for got := 0; got == 0; {
			changes, err := st.Next(ctx)
			if err != nil {
				b.Fatal(err)
			}
			got = len(changes)
		}
		total += time.Since(committed)
	}
	b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs/change")
}
