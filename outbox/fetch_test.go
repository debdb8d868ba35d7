package outbox_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/outbox/outboxtest"
	"github.com/lastmile-gateway/lastmile/protocol"
)

func compareIDs(a, b protocol.EventID) int {
	for i := range a {
		if a[i] != b[i] {
			return int(a[i]) - int(b[i])
		}
	}
	return 0
}

// While one query is under way all others gather into the next.
func TestFetch_GathersIntoOneQuery(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{CacheBytes: -1})
	ids := b.Publish(50)
	var queries atomic.Int32
	asked, answer := make(chan struct{}, 100), make(chan struct{})
	proxy.Set(func(c outboxtest.Command) outboxtest.Verdict {
		if c.Name == "find" {
			queries.Add(1)
			asked <- struct{}{}
			<-answer
		}
		return outboxtest.Verdict{}
	})
	fetch := func(id protocol.EventID) error {
		got, err := b.Store.Fetch(b.Ctx, id)
		if err == nil && got[id] == nil {
			err = errors.New("missing")
		}
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, len(ids))
	wg.Go(func() { errs[0] = fetch(ids[0]) })
	<-asked
	gone, cancel := context.WithCancel(b.Ctx)
	cancel()
	if _, err := b.Store.Fetch(gone, ids[1:]...); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that gave up: %v", err)
	}
	for i, id := range ids[1:] {
		wg.Go(func() { errs[i+1] = fetch(id) })
	}
	close(answer)
	wg.Wait()
	b.Must(errors.Join(errs...))
	if n := queries.Load(); n < 2 || n > 10 {
		t.Errorf("%d queries for 50 callers", n)
	}
}

func TestFetch_ErrorReachesAllWhoWaitAndNobodyElse(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{})
	id := b.Publish(1)[0]
	proxy.Set(outboxtest.Fail(1, "find", 96, "OperationFailed"))
	if _, err := b.Store.Fetch(b.Ctx, id); err == nil {
		t.Error("no error")
	}
	got, err := b.Store.Fetch(b.Ctx, id)
	if err != nil || got[id] == nil {
		t.Errorf("the next one: %v, %v", got, err)
	}
	proxy.Set(outboxtest.Fail(1, "find", 96, "OperationFailed"))
	if _, err := b.Store.Fetch(b.Ctx, id); err != nil {
		t.Errorf("out of the cache: %v", err)
	}
}
