package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/256dpi/lungo/bsonkit"
	bsonv1 "go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/lastmile-gateway/lastmile/internal/embedded/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ns    = store.Namespace{DB: "d", Coll: "c"}
	ctx   = context.Background()
	large = store.OplogLimits{Size: 5000, Bytes: 1 << 30}
)

func raw(t rapid.TB, v any) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(v)
	if err != nil {
		t.Fatalf("marshal %v: %v", v, err)
	}
	return b
}

func insert(t rapid.TB, e *store.Engine, docs ...bson.D) {
	t.Helper()
	err := e.Write(ctx, func(txn *store.Txn) error {
		for _, d := range docs {
			if _, err := txn.Insert(ns, raw(t, d)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("insert: %v", err)
	}
}

func query(t rapid.TB, filter bson.D) store.Query {
	t.Helper()
	f, err := store.CompileFilter(raw(t, filter))
	if err != nil {
		t.Fatalf("compile %v: %v", filter, err)
	}
	return store.Query{Filter: f}
}

// values draws BSON values of the types that documents here hold.
func values() *rapid.Generator[any] {
	return rapid.OneOf(
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int32().AsAny(), rapid.Int64().AsAny(),
		rapid.Int32Range(-3, 3).AsAny(), rapid.Float64Range(-5, 5).AsAny(), rapid.Float64().AsAny(),
		rapid.SampledFrom([]string{"", "a", "ab", "b", "a\x00", "a\x00b", "ä"}).AsAny(),
		rapid.Map(rapid.Int64Range(-1e12, 1e12), func(n int64) any { return bson.DateTime(n) }),
		rapid.Map(rapid.Uint32(), func(n uint32) any { return bson.Timestamp{T: n, I: n % 7} }),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 4), func(b []byte) any { return bson.Binary{Data: b} }),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 12, 12), func(b []byte) any { return bson.ObjectID(b) }),
		rapid.Map(rapid.Int32Range(0, 2), func(n int32) any { return bson.D{{Key: "x", Value: n}} }),
	)
}

// Keys order values as lungo, and so MongoDB, compares them.
func TestKey_OrdersAsValuesCompare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := raw(t, bson.D{{Key: "v", Value: values().Draw(t, "a")}}), raw(t, bson.D{{Key: "v", Value: values().Draw(t, "b")}})
		var da, db bsonv1.D
		if bsonv1.Unmarshal(a, &da) != nil || bsonv1.Unmarshal(b, &db) != nil {
			t.Fatal("decode")
		}
		want := bsonkit.Compare(da[0].Value, db[0].Value)
		ka, kb := store.AppendKey(nil, a.Lookup("v")), store.AppendKey(nil, b.Lookup("v"))
		if got := bytes.Compare(ka, kb); got != want {
			t.Fatalf("%v and %v: keys %x and %x compare as %d, want %d", da, db, ka, kb, got, want)
		}
		if want != 0 && (bytes.HasPrefix(ka, kb) || bytes.HasPrefix(kb, ka)) {
			t.Fatalf("%x and %x: one is the beginning of the other", ka, kb)
		}
	})
}

func TestToken_IsReadBackAndSortsAsThePlaces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) store.Token {
			return store.Token{
				Time:  store.Timestamp{T: rapid.Uint32().Draw(t, name), I: rapid.Uint32Range(0, 3).Draw(t, name)},
				Event: true, Index: rapid.IntRange(0, 100_000).Draw(t, name), Invalidate: rapid.Bool().Draw(t, name),
			}
		}
		a, b := draw("a"), draw("b")
		for _, want := range []store.Token{a, store.HighWaterMark(a.Time)} {
			got, err := store.ParseToken(want.String())
			if err != nil || got.String() != want.String() || got.Time != want.Time || got.Index != want.Index || got.Event != want.Event {
				t.Fatalf("%v read back is %v, %v", want, got, err)
			}
		}
		if c := a.Time.Compare(b.Time); c < 0 && a.String() >= b.String() {
			t.Fatalf("%s is not below %s", a, b)
		}
		if a.Time == b.Time && a.Index < b.Index && a.String() >= b.String() {
			t.Fatalf("%s is not below %s", a, b)
		}
		if store.HighWaterMark(a.Time).String() >= a.String() {
			t.Fatalf("the high-water mark of %s is not below it", a)
		}
	})
}

func FuzzToken(f *testing.F) {
	f.Add("826B0E04350000000B2B022C0100296E5A1004731796FEDD9146EAB16C903FA92E1A6A463C5F6964003C61000004")
	f.Add("826B0E04350000000B2B0229296E04")
	f.Fuzz(func(t *testing.T, data string) {
		token, err := store.ParseToken(data)
		if err != nil {
			return
		}
		if again, err := store.ParseToken(token.String()); err != nil || again.String() != token.String() {
			t.Fatalf("%q: read back as %v, %v", data, again, err)
		}
	})
}

// Whatever indexes there are, a query finds the same documents, in an order that
// the sort allows.
func TestFind_IndexesChangeNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		plain, indexed := store.NewEngine(store.Config{Oplog: large}), store.NewEngine(store.Config{Oplog: large})
		for i := range rapid.IntRange(1, 3).Draw(t, "indexes") {
			// Some are drawn twice; the error doesn't matter.
			_, _ = indexed.CreateIndexes(ns, []store.IndexSpec{drawIndex(t, fmt.Sprint(i))})
		}
		for i := range rapid.IntRange(0, 12).Draw(t, "documents") {
			d := drawDocument(t, i)
			insert(t, plain, d)
			insert(t, indexed, d)
		}
		for range 10 {
			q, sorted := drawQuery(t)
			want, err := store.Find(plain.Snapshot(), ns, q)
			if err != nil {
				t.Fatalf("find: %v", err)
			}
			got, err := store.Find(indexed.Snapshot(), ns, q)
			if err != nil {
				t.Fatalf("find: %v", err)
			}
			if !same(want, got, sorted) {
				t.Fatalf("with indexes %v, without %v", got, want)
			}
		}
	})
}

var (
	fields    = rapid.SampledFrom([]string{"a", "a", "b", "_id", "c.d"})
	direction = rapid.SampledFrom([]int32{1, -1})
	small     = rapid.OneOf(
		rapid.Int32Range(0, 3).AsAny(), rapid.Int32Range(0, 3).AsAny(),
		rapid.SampledFrom([]any{nil, "x", 1.5, bson.A{int32(1), int32(3)}, bson.D{{Key: "d", Value: int32(2)}}}),
	)
)

func drawIndex(t *rapid.T, name string) store.IndexSpec {
	key := bson.D{{Key: fields.Draw(t, "field"), Value: direction.Draw(t, "order")}}
	if second := fields.Draw(t, "second"); second != key[0].Key {
		key = append(key, bson.E{Key: second, Value: direction.Draw(t, "order")})
	}
	return store.IndexSpec{Name: name, Key: raw(t, key), Sparse: rapid.IntRange(0, 3).Draw(t, "sparse") == 0}
}

func drawDocument(t *rapid.T, id int) bson.D {
	d := bson.D{{Key: "_id", Value: id}}
	for _, f := range []string{"a", "b", "c"} {
		if rapid.IntRange(0, 3).Draw(t, "has") > 0 {
			d = append(d, bson.E{Key: f, Value: small.Draw(t, f)})
		}
	}
	return d
}

func drawQuery(t *rapid.T) (q store.Query, sorted bool) {
	operator := rapid.SampledFrom([]string{"$eq", "$gt", "$gte", "$lt", "$lte", "$ne"})
	filter := bson.D{}
	for range rapid.IntRange(0, 2).Draw(t, "conditions") {
		filter = append(filter, bson.E{Key: fields.Draw(t, "on"), Value: bson.D{{Key: operator.Draw(t, "op"), Value: small.Draw(t, "value")}}})
	}
	if rapid.Bool().Draw(t, "and") && len(filter) == 2 {
		filter = bson.D{{Key: "$and", Value: bson.A{bson.D{filter[0]}, bson.D{filter[1]}}}}
	}
	q = query(t, filter)
	if sorted = rapid.Bool().Draw(t, "sorted"); !sorted {
		return q, false
	}
	sort := bson.D{{Key: fields.Draw(t, "sort"), Value: direction.Draw(t, "direction")}}
	if sort[0].Key != "_id" {
		sort = append(sort, bson.E{Key: "_id", Value: direction.Draw(t, "direction")})
	}
	q.Sort = raw(t, sort)
	q.Skip, q.Limit = rapid.IntRange(0, 2).Draw(t, "skip"), rapid.IntRange(0, 4).Draw(t, "limit")
	return q, true
}

func same(a, b []bson.Raw, ordered bool) bool {
	if len(a) != len(b) {
		return false
	}
	seen := map[string]bool{}
	for i := range a {
		if ordered && !bytes.Equal(a[i], b[i]) {
			return false
		}
		seen[string(a[i])] = true
	}
	for _, d := range b {
		if !seen[string(d)] {
			return false
		}
	}
	return true
}

// A snapshot shows what there was, whatever is written after it.
func TestSnapshot_StaysAsItWas(t *testing.T) {
	t.Parallel()
	e := store.NewEngine(store.Config{Oplog: large})
	for i := range 500 {
		insert(t, e, bson.D{{Key: "_id", Value: i}})
	}
	before := e.Snapshot()
	err := e.Write(ctx, func(txn *store.Txn) error {
		_, err := txn.Delete(ns, query(t, bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: 100}}}}))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, m := store.Count(before, ns), store.Count(e.Snapshot(), ns); n != 500 || m != 100 {
		t.Fatalf("the snapshot has %d documents, the latest state %d", n, m)
	}
}

// Single writers and transactions count up the same documents; no count is lost,
// and the oplog holds each.
func TestWrite_NoUpdateIsLost(t *testing.T) {
	t.Parallel()
	e := store.NewEngine(store.Config{Oplog: large})
	insert(t, e, bson.D{{Key: "_id", Value: 0}, {Key: "n", Value: 0}}, bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 0}})
	inc, err := store.CompileUpdate(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: raw(t, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}})}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const workers, rounds = 8, 50
	done := make(chan int, workers)
	for w := range workers {
		go func() {
			counted := 0
			for i := range rounds {
				q := query(t, bson.D{{Key: "_id", Value: i % 2}})
				fn := func(txn *store.Txn) error { _, err := txn.Update(ns, q, inc, false, false); return err }
				if w%2 == 0 {
					if e.Write(ctx, fn) == nil {
						counted++
					}
					continue
				}
				txn := e.Begin()
				if fn(txn) == nil && txn.Commit(nil, 0) == nil {
					counted++
				}
				txn.Abort()
			}
			done <- counted
		}()
	}
	want := 0
	for range workers {
		want += <-done
	}
	docs, err := store.Find(e.Snapshot(), ns, query(t, bson.D{}))
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for _, d := range docs {
		got += int(d.Lookup("n").AsInt64())
	}
	updates := 0
	for _, entry := range e.ReadOplog(0, 10_000).Entries {
		if entry.Op == store.OpUpdate {
			updates++
		}
	}
	if got != want || updates != want || want < workers/2*rounds {
		t.Fatalf("%d updates were said to be done, %d are stored and %d in the oplog", want, got, updates)
	}
}

// The oplog keeps a transaction whole, and what is younger than its least age.
func TestOplog_Trim(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	e := store.NewEngine(store.Config{
		Oplog: store.OplogLimits{Size: 10, Bytes: 1 << 30, MinAge: time.Minute},
		Now:   func() time.Time { return now },
	})
	for i := range 30 {
		insert(t, e, bson.D{{Key: "_id", Value: i}})
	}
	if b := e.ReadOplog(0, 100); b.First != 0 || len(b.Entries) < 30 {
		t.Fatalf("entries younger than a minute are gone: first is %d", b.First)
	}
	now = now.Add(2 * time.Minute)
	txn := e.Begin()
	for i := range 15 {
		if _, err := txn.Insert(ns, raw(t, bson.D{{Key: "_id", Value: 100 + i}})); err != nil {
			t.Fatal(err)
		}
	}
	if err := txn.Commit(raw(t, bson.D{{Key: "id", Value: 1}}), 1); err != nil {
		t.Fatal(err)
	}
	first := e.ReadOplog(0, 1).First
	b := e.ReadOplog(first, 100)
	if len(b.Entries) != 15 || b.Entries[0].Index != 0 {
		t.Fatalf("%d entries are left, the first with index %d", len(b.Entries), b.Entries[0].Index)
	}
	if _, oldest := e.SeekOplog(store.Timestamp{}); oldest != b.Entries[0].Time {
		t.Fatalf("the oldest is said to be %v", oldest)
	}
}

func TestWrite_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	e := store.NewEngine(store.Config{Oplog: large})
	txn := e.Begin()
	defer txn.Abort()
	if _, err := txn.Insert(ns, raw(t, bson.D{{Key: "_id", Value: 1}})); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	err := e.Write(short, func(w *store.Txn) error { _, err := w.Insert(ns, raw(t, bson.D{{Key: "_id", Value: 1}})); return err })
	var coded *store.Error
	if !errors.As(err, &coded) || coded.Code != store.CodeInterrupted {
		t.Fatalf("got %v", err)
	}
}
