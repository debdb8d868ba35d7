package protocol_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// itemOf makes an item of n recipients whose body has about size bytes.
func itemOf(t testing.TB, n, size int) protocol.Item {
	t.Helper()
	e := event()
	e.ID = protocol.NewEventID()
	e.Data = []byte(`{"x":"` + strings.Repeat("y", size) + `"}`)
	pairs := make([]protocol.Pair, n)
	for i := range pairs {
		pairs[i] = protocol.Pair{User: protocol.UserID(fmt.Sprintf("user-%06d", i)), Epoch: testEpoch, Seq: protocol.Seq(i + 1)}
	}
	return protocol.Item{Event: envelope(t, e), Pairs: pairs}
}

func anyItem(t *rapid.T) protocol.Item {
	v, err := protocol.NewEnvelope(anyEvent(t))
	if err != nil {
		t.Fatal(err)
	}
	pairs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) protocol.Pair {
		p := protocol.Pair{User: protocol.UserID(rapid.StringMatching(`[a-zé]{1,20}`).Draw(t, "user"))}
		if p.Seq = protocol.Seq(rapid.Int64Range(0, int64(protocol.MaxSeq)).Draw(t, "seq")); p.Seq > 0 {
			p.Epoch = testEpoch
		}
		return p
	}), 1, 6).Draw(t, "pairs")
	return protocol.Item{Event: v, Pairs: pairs}
}

func TestBatch_roundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := protocol.Batch{Items: rapid.SliceOfN(rapid.Custom(anyItem), 0, 8).Draw(t, "items")}
		prefix := []byte("kept")
		encoded := b.AppendTo(prefix)
		if string(encoded[:4]) != "kept" {
			t.Fatalf("the prefix became %q", encoded[:4])
		}
		back, err := protocol.DecodeBatch(encoded[4:])
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Items) == 0 && len(back.Items) == 0 {
			return
		}
		if diff := cmp.Diff(b, back); diff != "" {
			t.Fatal(diff)
		}
		if back.Events() != b.Events() || back.Pairs() != b.Pairs() {
			t.Fatalf("counts %d, %d", back.Events(), back.Pairs())
		}
	})
}

// An epoch without a seq belongs to nothing, so it is not carried.
func TestBatch_seqZeroHasNoEpoch(t *testing.T) {
	t.Parallel()
	it := itemOf(t, 1, 0)
	it.Pairs[0].Seq = 0
	back, err := protocol.DecodeBatch(protocol.Batch{Items: []protocol.Item{it}}.AppendTo(nil))
	if err != nil || back.Items[0].Pairs[0] != (protocol.Pair{User: "user-000000"}) {
		t.Errorf("%+v, %v", back.Items, err)
	}
}

func TestDecodeBatch_everyTruncationAndEveryByteIsAnErrorOrABatch(t *testing.T) {
	t.Parallel()
	encoded := protocol.Batch{Items: []protocol.Item{itemOf(t, 3, 10), itemOf(t, 2, 0)}}.AppendTo(nil)
	for n := range encoded {
		if _, err := protocol.DecodeBatch(encoded[:n]); !errors.Is(err, protocol.ErrBatch) {
			t.Errorf("the first %d bytes of %d: %v", n, len(encoded), err)
		}
	}
	if _, err := protocol.DecodeBatch(append(encoded[:len(encoded):len(encoded)], 0)); !errors.Is(err, protocol.ErrBatch) {
		t.Errorf("a byte after the end: %v", err)
	}
	for i := range encoded {
		for _, c := range []byte{0, 0x7f, 0x80, 0xff} {
			damaged := append([]byte(nil), encoded...)
			damaged[i] = c
			if b, err := protocol.DecodeBatch(damaged); err == nil {
				b.AppendTo(nil) // what is taken can be used
			}
		}
	}
	encoded[0] = 2
	if _, err := protocol.DecodeBatch(encoded); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("a later version: %v", err)
	}
}

func TestDecodeBatch_hugeCountsTakeNoMemory(t *testing.T) {
	// Not parallel: the memory statistics would count what other tests take.
	for name, b := range map[string][]byte{
		"items":     {1, 0xff, 0xff, 0xff, 0xff, 0x07, 0, 0, 0},
		"pairs":     {1, 1, 0xff, 0xff, 0xff, 0xff, 0x07, 0, 0},
		"text":      {1, 1, 1, 0xff, 0xff, 0xff, 0xff, 0x07, 0},
		"over 2^31": {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := protocol.DecodeBatch(b)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, protocol.ErrBatch) {
			t.Errorf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<10 { // the runtime's own is in it
			t.Errorf("%s: %d bytes taken for %d", name, took, len(b))
		}
	}
}

func TestBatch_allocations(t *testing.T) {
	items := make([]protocol.Item, protocol.MaxBatchEvents)
	for i := range items {
		items[i] = itemOf(t, 8, 100)
	}
	b := protocol.Batch{Items: items}
	buf := b.AppendTo(nil)
	if got := testing.AllocsPerRun(100, func() { buf = b.AppendTo(buf[:0]) }); got > 0 {
		t.Errorf("AppendTo allocates %v times, want 0", got)
	}
	if got := testing.AllocsPerRun(100, func() {
		if _, err := protocol.DecodeBatch(buf); err != nil {
			t.Fatal(err)
		}
	}); got > 4 { // text, items, envelopes, pairs
		t.Errorf("DecodeBatch allocates %v times for %d events, want 4", got, b.Events())
	}
}

// Of a pair there is little more in a batch than user and epoch themselves.
func TestBatch_isCompact(t *testing.T) {
	t.Parallel()
	it := itemOf(t, protocol.MaxBatchPairs, 0)
	encoded := protocol.Batch{Items: []protocol.Item{it}}.AppendTo(nil)
	own := len(it.Event.Body) + len(it.Pairs)*(len(it.Pairs[0].User)+len(testEpoch))
	if extra := len(encoded) - own; extra > 5*len(it.Pairs) {
		t.Errorf("%d bytes beside %d of content, for %d pairs", extra, own, len(it.Pairs))
	}
}

func TestSplit_limits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var items []protocol.Item
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			v := &protocol.Envelope{ID: protocol.NewEventID(), Type: "t", Time: time.UnixMilli(5), Body: []byte("{" + strings.Repeat(" ", rapid.SampledFrom([]int{0, 100, 5_000, 70_000}).Draw(t, "body")) + "}")}
			pairs := make([]protocol.Pair, rapid.SampledFrom([]int{0, 1, 1, 2, 999, 1000, 1001, 2500}).Draw(t, "pairs"))
			for i := range pairs {
				pairs[i] = protocol.Pair{User: protocol.UserID(fmt.Sprint(i)), Epoch: testEpoch, Seq: 1}
			}
			items = append(items, protocol.Item{Event: v, Pairs: pairs})
		}
		checkSplit(t, items, protocol.Split(items))
	})
}

func checkSplit(t *rapid.T, items []protocol.Item, batches []protocol.Batch) {
	type delivery struct {
		id   protocol.EventID
		pair protocol.Pair
	}
	flat := func(items []protocol.Item) (out []delivery) {
		for _, it := range items {
			for _, p := range it.Pairs {
				out = append(out, delivery{it.Event.ID, p})
			}
		}
		return out
	}
	var got []delivery
	for i, b := range batches {
		got = append(got, flat(b.Items)...)
		size := len(b.AppendTo(nil))
		if b.Events() == 0 || b.Events() > protocol.MaxBatchEvents || size > protocol.MaxBatchBytes && b.Events() > 1 {
			t.Fatalf("batch %d: %d events, %d bytes", i, b.Events(), size)
		}
		for _, it := range b.Items {
			if n := len(it.Pairs); n == 0 || n > protocol.MaxBatchPairs {
				t.Fatalf("batch %d: %d pairs of one event", i, n)
			}
		}
	}
	want := flat(items)
	if len(got) != len(want) {
		t.Fatalf("%d deliveries, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("delivery %d is %v, want %v", i, got[i], want[i])
		}
	}
}

func TestSplit_fillsBatches(t *testing.T) {
	t.Parallel()
	items := make([]protocol.Item, 130)
	for i := range items {
		items[i] = itemOf(t, 1, 0)
	}
	var sizes []int
	for _, b := range protocol.Split(items) {
		sizes = append(sizes, b.Events())
	}
	if diff := cmp.Diff([]int{64, 64, 2}, sizes); diff != "" {
		t.Error(diff)
	}
}

func FuzzDecodeBatch(f *testing.F) {
	f.Add(protocol.Batch{}.AppendTo(nil))
	f.Add(protocol.Batch{Items: []protocol.Item{itemOf(f, 2, 5), itemOf(f, 1, 0)}}.AppendTo(nil))
	f.Add([]byte{1, 1, 1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		batch, err := protocol.DecodeBatch(b)
		if err != nil {
			if !errors.Is(err, protocol.ErrBatch) {
				t.Fatalf("%v is not ErrBatch", err)
			}
			return
		}
		again, err := protocol.DecodeBatch(batch.AppendTo(nil))
		if err != nil {
			t.Fatalf("taken once, then refused: %v", err)
		}
		if diff := cmp.Diff(batch, again); diff != "" {
			t.Fatal(diff)
		}
	})
}

func BenchmarkDecodeBatch(b *testing.B) {
	items := make([]protocol.Item, protocol.MaxBatchEvents)
	for i := range items {
		items[i] = itemOf(b, 8, 100)
	}
	buf := protocol.Batch{Items: items}.AppendTo(nil)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := protocol.DecodeBatch(buf); err != nil {
			b.Fatal(err)
		}
	}
}
