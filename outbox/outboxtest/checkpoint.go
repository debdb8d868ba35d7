package outboxtest

import (
	"errors"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/outbox"
)

func marker(tick int64, t uint32) outbox.Marker {
	token, _ := bson.Marshal(bson.D{{Key: "_data", Value: "82"}, {Key: "tick", Value: tick}})
	return outbox.Marker{Token: token, Position: outbox.Position{Timestamp: outbox.Timestamp{T: t, I: 2}, Index: 3}, Tick: tick}
}

var checkpointTests = []test{
	{"is read back as it was written", func(b *Bundle) {
		cp, err := b.Store.Checkpoint(b.Ctx, 3)
		if cp != nil || err != nil {
			b.Fatalf("got %v, %v before any was written", cp, err)
		}
		b.Must(b.Store.TakeFence(b.Ctx, 3, 4, 7))
		if cp, err := b.Store.Checkpoint(b.Ctx, 3); cp != nil || err != nil {
			b.Errorf("without a marker: got %v, %v", cp, err)
		}
		now := time.UnixMilli(1796080693123).UTC()
		want := &outbox.Checkpoint{Partition: 3, Partitions: 4, Fence: 7, NotificationsSince: now}
		for tick := int64(1); tick <= 3; tick++ {
			slot := outbox.Slot{Marker: marker(tick, uint32(100+tick)), Time: now.Add(time.Duration(tick) * 5 * time.Second)}
			b.Must(b.Store.SaveSlot(b.Ctx, 3, 7, slot))
			want.Ring = append(want.Ring, slot)
		}
		want.Hourly = want.Ring[:1]
		m := marker(3, 110)
		want.Marker = &m
		b.Must(b.Store.SaveMarker(b.Ctx, 3, 7, m, now))
		b.Must(b.Store.SaveMarker(b.Ctx, 3, 7, m, time.Time{}))
		cp, err = b.Store.Checkpoint(b.Ctx, 3)
		b.Must(err)
		if diff := cmp.Diff(want, cp); diff != "" {
			b.Errorf("read back otherwise (-written +read):\n%s", diff)
		}
		all, err := b.Store.Checkpoints(b.Ctx)
		b.Must(err)
		if diff := cmp.Diff([]*outbox.Checkpoint{want}, all); diff != "" {
			b.Errorf("listed otherwise:\n%s", diff)
		}
		b.Must(b.Store.SaveMarker(b.Ctx, 3, 7, outbox.Marker{}, time.Time{}))
		if cp, err := b.Store.Checkpoint(b.Ctx, 3); cp != nil || err != nil {
			b.Errorf("its marker taken away: got %v, %v", cp, err)
		}
	}},
	{"a fence keeps out all smaller ones", func(b *Bundle) {
		b.wantError(b.Store.SaveMarker(b.Ctx, 0, 1, marker(1, 1), time.Time{}), outbox.ErrFenced)
		b.Must(b.Store.TakeFence(b.Ctx, 0, 1, 7))
		for _, fence := range []int64{6, 7} {
			err := b.Store.TakeFence(b.Ctx, 0, 1, fence)
			b.wantError(err, outbox.ErrFenced)
			var fenced *outbox.FencedError
			if !errors.As(err, &fenced) || fenced.Found != 7 {
				b.Errorf("got %v", err)
			}
		}
		b.Must(b.Store.SaveMarker(b.Ctx, 0, 7, marker(1, 1), time.Time{}))
		b.Must(b.Store.TakeFence(b.Ctx, 0, 1, 8))
		b.wantError(b.Store.SaveMarker(b.Ctx, 0, 7, marker(2, 2), time.Time{}), outbox.ErrFenced)
		b.wantError(b.Store.SaveSlot(b.Ctx, 0, 7, outbox.Slot{Marker: marker(2, 2), Time: time.Now()}), outbox.ErrFenced)
		cp, err := b.Store.Checkpoint(b.Ctx, 0)
		b.Must(err)
		if cp.Marker.Tick != 1 || cp.Fence != 8 || len(cp.Ring) != 0 {
			b.Errorf("got %+v", cp)
		}
		if fence, err := b.Store.Fence(b.Ctx, 0); fence != 8 || err != nil {
			b.Errorf("fence %d, %v", fence, err)
		}
		if fence, err := b.Store.Fence(b.Ctx, 1); fence != 0 || err != nil {
			b.Errorf("fence %d, %v of an unknown partition", fence, err)
		}
	}},
	{"of two with one fence, one has it", func(b *Bundle) {
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() { errs[i] = b.Store.TakeFence(b.Ctx, 0, 1, 5) })
		}
		wg.Wait()
		taken := 0
		for _, err := range errs {
			switch {
			case err == nil:
				taken++
			case !errors.Is(err, outbox.ErrFenced):
				b.Error(err)
			}
		}
		if taken != 1 {
			b.Errorf("%d took it", taken)
		}
	}},
	{"of several with different fences the greatest has it", func(b *Bundle) {
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() { errs[i] = b.Store.TakeFence(b.Ctx, 0, 1, int64(i+1)) })
		}
		wg.Wait()
		for i, err := range errs {
			var fenced *outbox.FencedError
			if errors.As(err, &fenced) && fenced.Found < fenced.Fence || err != nil && (fenced == nil || i == len(errs)-1) {
				b.Errorf("fence %d: %v", i+1, err)
			}
		}
	}},
	{"the ring keeps the last slots, the hourly ones each hour's first", func(b *Bundle) {
		b.Must(b.Store.TakeFence(b.Ctx, 0, 1, 1))
		began := time.Unix(1796080693, 0).Truncate(time.Hour)
		for tick := int64(1); tick <= outbox.RingSlots+70; tick++ {
			slot := outbox.Slot{Marker: marker(tick, uint32(tick)), Time: began.Add(time.Duration(tick) * 10 * time.Minute)}
			b.Must(b.Store.SaveSlot(b.Ctx, 0, 1, slot))
		}
		m := marker(outbox.RingSlots+70, 1000)
		b.Must(b.Store.SaveMarker(b.Ctx, 0, 1, m, time.Time{}))
		cp, err := b.Store.Checkpoint(b.Ctx, 0)
		b.Must(err)
		if len(cp.Ring) != outbox.RingSlots || cp.Ring[0].Tick != 71 {
			b.Errorf("ring of %d from tick %d", len(cp.Ring), cp.Ring[0].Tick)
		}
		if len(cp.Hourly) != outbox.HourlySlots || cp.Hourly[len(cp.Hourly)-1].Tick != 198 || cp.Hourly[0].Tick%6 != 0 {
			b.Errorf("%d hourly, from tick %d to %d", len(cp.Hourly), cp.Hourly[0].Tick, cp.Hourly[len(cp.Hourly)-1].Tick)
		}
		if back := cp.Back(*cp.Marker, 61); back.Position.T != 137 || back.Tick != m.Tick {
			b.Errorf("61 ticks back: %+v", back)
		}
	}},
	{"a marker is saved with the collection that it belongs to", func(b *Bundle) {
		old, err := b.Store.Collection(b.Ctx)
		b.Must(err)
		b.Must(b.Store.TakeFence(b.Ctx, 0, 1, 1))
		st := b.Watch(outbox.WatchOptions{})
		b.Publish(1)
		b.Read(st, 1)
		save := func() outbox.Marker {
			token, at := st.Place()
			m := outbox.Marker{Token: token, Position: at, Tick: 1}
			b.Must(b.Store.SaveMarker(b.Ctx, 0, 1, m, time.Time{}))
			return m
		}
		collection := func() string {
			cp, err := b.Store.Checkpoint(b.Ctx, 0)
			b.Must(err)
			return cp.Collection
		}
		before := save()
		if got := collection(); got != old {
			b.Errorf("got %q, wanted %q", got, old)
		}
		b.Must(b.Events.Drop(b.Ctx))
		b.Must(b.Store.Prepare(b.Ctx))
		b.Publish(1)
		b.Read(st, 1)
		b.Must(b.Store.SaveMarker(b.Ctx, 0, 1, before, time.Time{}))
		if got := collection(); got != old {
			b.Errorf("a marker of before the drop was saved under %q", got)
		}
		now, err := b.Store.Collection(b.Ctx)
		b.Must(err)
		b.eventually("the stream is open on the new collection", func() bool {
			b.Quiet(st)
			save()
			return collection() == now
		})
	}},
}
