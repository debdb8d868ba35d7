package outbox_test

import (
	"math"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/outbox/outboxtest"
)

// An array of dates is sorted as the date in it, but nothing else is greater than an array: a scan that went on
// behind one would end there.
func TestScan_BreaksAtAnArrayOfDates(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{BatchSize: 4})
	began := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	for i := range 12 {
		e := outboxtest.Event(i)
		e.Time = began.Add(time.Duration(i) * time.Second)
		if i != 3 { // the last of the first batch
			b.Must(b.Store.Publish(b.Ctx, e))
			continue
		}
		_, err := b.Events.InsertOne(b.Ctx, bson.D{{Key: "_id", Value: "array"}, {Key: "time", Value: bson.A{e.Time}}})
		b.Must(err)
	}
	var cut atomic.Bool
	proxy.Set(func(c outboxtest.Command) outboxtest.Verdict {
		if c.Name == "getMore" && cut.CompareAndSwap(false, true) {
			return outboxtest.Verdict{Cut: true}
		}
		return outboxtest.Verdict{}
	})
	events := map[string]bool{}
	for _, c := range scan(b, began.Add(-time.Second)) {
		if c.Event != nil {
			events[string(c.Event.Data)] = true
		}
	}
	if len(events) != 11 || !cut.Load() {
		t.Errorf("%d of 11 events", len(events))
	}
}

// An id of one type is neither less nor greater than one of another: a scan that went on behind a number would leave
// out the events of the same time.
func TestScan_BreaksAtAnIDOfAnotherType(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{BatchSize: 2})
	at := time.Now().Truncate(time.Millisecond)
	for i := range 2 { // numbers come before strings
		_, err := b.Events.InsertOne(b.Ctx, bson.D{{Key: "_id", Value: i}, {Key: "time", Value: at}})
		b.Must(err)
	}
	for i := range 6 {
		e := outboxtest.Event(i)
		e.Time = at
		b.Must(b.Store.Publish(b.Ctx, e))
	}
	var cut atomic.Bool
	proxy.Set(func(c outboxtest.Command) outboxtest.Verdict {
		if c.Name == "getMore" && cut.CompareAndSwap(false, true) {
			return outboxtest.Verdict{Cut: true}
		}
		return outboxtest.Verdict{}
	})
	events := map[string]bool{}
	for _, c := range scan(b, at.Add(-time.Second)) {
		if c.Event != nil {
			events[string(c.Event.Data)] = true
		}
	}
	if len(events) != 6 || !cut.Load() {
		t.Errorf("%d of 6 events", len(events))
	}
}

// A date that no calendar has is before everything; its document is found all the same.
func TestScan_FindsTheFirstDateThereIs(t *testing.T) {
	t.Parallel()
	b, _ := setup(t, outbox.Config{})
	_, err := b.Events.InsertOne(b.Ctx, bson.D{{Key: "_id", Value: "first"}, {Key: "time", Value: bson.DateTime(math.MinInt64)}})
	b.Must(err)
	if all := scan(b, time.Time{}); len(all) != 1 || all[0].Fault == nil {
		t.Errorf("got %d changes", len(all))
	}
}
