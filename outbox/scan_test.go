package outbox_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/outbox/outboxtest"
)

func collect(all *[]outbox.Change) func(context.Context, []outbox.Change) error {
	return func(_ context.Context, changes []outbox.Change) error {
		*all = append(*all, changes...)
		return nil
	}
}

// A scan that breaks goes on behind what was handed over.
func TestScan_GoesOnWhereItBroke(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{BatchSize: 5})
	ids := b.Publish(32)
	var queries atomic.Int32
	proxy.Set(func(c outboxtest.Command) outboxtest.Verdict {
		if c.Name == "getMore" && queries.Add(1)%2 == 0 {
			return outboxtest.Verdict{Cut: true, Late: true}
		}
		return outboxtest.Verdict{}
	})
	got := outboxtest.IDs(scan(b, time.Time{}))
	slices.SortFunc(ids, compareIDs) // several have one time: then the id decides
	slices.SortFunc(got, compareIDs)
	if !slices.Equal(got, ids) {
		t.Errorf("got %d events, wanted each of %d once", len(got), len(ids))
	}
}
