package outboxtest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// Malformed is a document that is no event, and where in it the first fault is.
type Malformed struct {
	Name    string
	Pointer string
	Doc     bson.D
}

// MalformedDocuments are about sixty kinds of documents that are no events: each field missing, of wrong types,
// too large or against its rules. Each has an `_id` of its own.
func MalformedDocuments() []Malformed {
	var all []Malformed
	add := func(name, pointer string, change func(bson.D) bson.D) {
		doc := change(document(Event(len(all))))
		if _, err := bson.Marshal(doc); err != nil {
			panic(fmt.Sprintf("document %q: %v", name, err))
		}
		all = append(all, Malformed{name, pointer, doc})
	}
	for _, field := range []string{"to", "type", "data", "time"} {
		add("no "+field, "/"+field, func(d bson.D) bson.D { return without(d, field) })
		add("null "+field, "/"+field, func(d bson.D) bson.D { return with(d, field, nil) })
	}
	for _, f := range faults {
		for i, value := range f.values {
			add(fmt.Sprintf("%s %d: %.40T", f.field, i, value), f.pointer, func(d bson.D) bson.D { return with(d, f.field, value) })
		}
	}
	for name, id := range badIDs() {
		add("id "+name, "/_id", func(d bson.D) bson.D { return with(d, "_id", id) })
	}
	return all
}

var long = strings.Repeat("x", 300)

var faults = []struct {
	field, pointer string
	values         []any
}{
	{"to", "/to", []any{"alice", bson.A{}, bson.D{{Key: "0", Value: "alice"}}, 5, true}},
	{"to", "/to/1", []any{bson.A{"a", 5}, bson.A{"a", nil}, bson.A{"a", ""}, bson.A{"a", long}, bson.A{"a", "b\n"}, bson.A{"a", bson.A{"b"}}}},
	{"to", "/to/0", []any{bson.A{bson.D{}, "a"}}},
	{"type", "/type", []any{5, "", long, "a\x00b", bson.A{"t"}, bson.D{}}},
	{"source", "/source", []any{5, long, bson.D{}}},
	{"subject", "/subject", []any{5, long, "a\x7f", bson.A{}}},
	{"key", "/key", []any{5, long, bson.D{}}},
	{"traceparent", "/traceparent", []any{5, long}},
	{"data", "/data", []any{
		"{}", 5, bson.A{1}, true,
		bson.D{{Key: "re", Value: bson.Regex{Pattern: "a"}}},
		bson.D{{Key: "x", Value: bson.A{bson.D{{Key: "t", Value: bson.Timestamp{T: 1}}}}}},
		bson.D{{Key: "m", Value: bson.MinKey{}}}, bson.D{{Key: "js", Value: bson.JavaScript("1")}},
		bson.D{{Key: "nan", Value: nan()}}, bson.D{{Key: "big", Value: strings.Repeat("x", protocol.MaxData)}},
		nested(protocol.MaxDataDepth + 2),
	}},
	{"hash", "/hash", []any{-1, "5", 1.5, int64(1) << 40, bson.D{}}},
	{"time", "/time", []any{"2026-01-02T15:04:05Z", int64(1796080693000), bson.Timestamp{T: 5}, bson.DateTime(1 << 55), 5.5}},
	{"expiresAt", "/expiresAt", []any{"tomorrow", 5, bson.DateTime(-1 << 55)}},
	{"ephemeral", "/ephemeral", []any{1, "true", bson.D{}}},
	{"notify", "/notify", []any{0, "false", bson.A{}}},
}

func badIDs() map[string]any {
	id := protocol.NewEventID().String()
	return map[string]any{
		"an ObjectID": bson.NewObjectID(), "a number": time.Now().UnixNano(), "a text": "order-1", "upper case": strings.ToUpper(id),
		"without hyphens": strings.ReplaceAll(id, "-", ""), "in braces": "{" + id + "}", "nil": "00000000-0000-0000-0000-000000000000",
		"a document": bson.D{{Key: "a", Value: id}}, "a binary UUID": bson.Binary{Subtype: 4, Data: []byte(id[:16])}, "long": id + long,
	}
}

func nan() float64 {
	var zero float64
	return zero / zero
}

func nested(depth int) bson.D {
	d := bson.D{}
	for range depth {
		d = bson.D{{Key: "d", Value: d}}
	}
	return d
}

func with(d bson.D, field string, value any) bson.D {
	return append(without(d, field), bson.E{Key: field, Value: value})
}

func without(d bson.D, field string) bson.D {
	var out bson.D
	for _, e := range d {
		if e.Key != field {
			out = append(out, e)
		}
	}
	return out
}

var documentTests = []test{
	{"malformed documents are faults with their place, and hold up nothing", func(b *Bundle) {
		st := b.Watch(outbox.WatchOptions{})
		bad := MalformedDocuments()
		good := Event(0)
		for _, m := range bad {
			_, err := b.Events.InsertOne(b.Ctx, m.Doc)
			if err != nil {
				b.Fatalf("%s: %v", m.Name, err)
			}
		}
		b.Must(b.Store.Publish(b.Ctx, good))
		changes := b.Read(st, len(bad)+1)
		for i, m := range bad {
			c := changes[i]
			var invalid *protocol.ValidationError
			if c.Event != nil || !errors.As(c.Fault, &invalid) {
				b.Errorf("%s: event %v, fault %v", m.Name, c.Event, c.Fault)
				continue
			}
			if p := invalid.Faults[0].Pointer; p != m.Pointer {
				b.Errorf("%s: fault at %q, wanted %q: %v", m.Name, p, m.Pointer, invalid)
			}
			b.Must(b.Store.Bury(b.Ctx, c, c.Fault.Error()))
			b.Must(b.Store.Bury(b.Ctx, c, "a second time"))
		}
		if last := changes[len(bad)]; last.Event == nil || last.Event.ID != good.ID {
			b.Errorf("the good one behind them: %s", describe(last))
		}
		dead := b.DB.Collection(outbox.DeadCollection)
		if n := b.count(dead, bson.D{{Key: "reason", Value: bson.D{{Key: "$ne", Value: "a second time"}}}}); n != len(bad) {
			b.Errorf("%d documents in outbox_dead, wanted %d", n, len(bad))
		}
	}},
	{"what can only mean one thing is taken", func(b *Bundle) {
		st := b.Watch(outbox.WatchOptions{})
		doc := document(Event(0, "a", "b"))
		for _, field := range []string{"source", "subject", "key", "hash", "expiresAt", "ephemeral", "notify", "traceparent"} {
			doc = append(doc, bson.E{Key: field, Value: nil})
		}
		doc = with(with(doc, "hash", 5.0), "to", bson.A{"a", "b", "a"})
		id := bson.NewObjectID()
		doc = with(doc, "data", bson.D{
			{Key: "at", Value: bson.DateTime(1767366245678)}, {Key: "id", Value: id}, {Key: "l", Value: int64(1) << 60},
			{Key: "d", Value: 1.0}, {Key: "b", Value: bson.Binary{Data: []byte("hi")}}, {Key: "u", Value: bson.Undefined{}},
			{Key: "s", Value: "\x01\"\\ü<"}, {Key: "e", Value: 1e-9},
		})
		_, err := b.Events.InsertOne(b.Ctx, append(doc, bson.E{Key: "unknown", Value: bson.Regex{}}))
		b.Must(err)
		c := b.Read(st, 1)[0]
		if c.Fault != nil {
			b.Fatal(c.Fault)
		}
		want := `{"at":"2026-01-02T15:04:05.678Z","id":"` + id.Hex() +
			`","l":1152921504606846976,"d":1,"b":"aGk=","u":null,"s":"\u0001\"\\ü<","e":1e-09}`
		if string(c.Event.Data) != want || len(c.Event.To) != 2 || *c.Event.Hash != 5 || c.Event.SkipNotify {
			b.Errorf("got %+v\ndata %s\nwant %s", c.Event, c.Event.Data, want)
		}
	}},
	{"what is no event falls to one partition", func(b *Bundle) {
		const n = 3
		streams := make([]*outbox.Stream, n)
		for p := range streams {
			streams[p] = b.Watch(outbox.WatchOptions{Partition: p, Partitions: n})
		}
		bad := MalformedDocuments()
		for _, m := range bad {
			_, err := b.Events.InsertOne(b.Ctx, m.Doc)
			b.Must(err)
		}
		for i := range 3 { // with a hash of their own
			_, err := b.Events.InsertOne(b.Ctx, bson.D{{Key: "hash", Value: i}})
			b.Must(err)
		}
		marks := make([]protocol.EventID, n) // the last of each partition
		for p := range marks {
			e, hash := Event(0), int32(p)
			e.Hash = &hash
			b.Must(b.Store.Publish(b.Ctx, e))
			marks[p] = e.ID
		}
		faults := 0
		for p, st := range streams {
			for end := false; !end; {
				changes, err := st.Next(b.Ctx)
				b.Must(err)
				for _, c := range changes {
					if c.Partition != p {
						b.Errorf("partition %d got what falls to %d", p, c.Partition)
					}
					if c.Fault != nil {
						faults++
					}
					end = end || c.Event != nil && c.Event.ID == marks[p]
				}
			}
		}
		if faults != len(bad)+3 {
			b.Errorf("%d faults, wanted each of %d once", faults, len(bad)+3)
		}
	}},
	{"T65: a giant _id stops nothing", func(b *Bundle) {
		st := b.Watch(outbox.WatchOptions{})
		first := b.Publish(1)
		b.Read(st, 1)
		giant := strings.Repeat("i", 4300<<10) // four times that is over 16 MB
		_, err := b.Events.InsertOne(b.Ctx, bson.D{{Key: "_id", Value: giant}})
		b.Must(err)
		behind := b.Publish(1)
		began := time.Now()
		var events []protocol.EventID
		var fault *outbox.Change
		for (len(events) == 0 || fault == nil) && time.Since(began) < 50*time.Second {
			changes, err := st.Next(b.Ctx)
			b.Must(err)
			for _, c := range changes {
				if c.Fault != nil {
					fault = &c
					continue
				}
				events = append(events, c.Event.ID)
			}
		}
		if len(events) != 1 || events[0] != behind[0] || fault == nil {
			b.Fatalf("got %v (first %v, behind %v), fault %v, trouble %v", events, first, behind, fault, st.Trouble())
		}
		b.Must(b.Store.Bury(b.Ctx, *fault, fault.Fault.Error()))
		b.Must(b.Store.Bury(b.Ctx, *fault, fault.Fault.Error()))
		if n := b.count(b.DB.Collection(outbox.DeadCollection), all); n != 1 {
			b.Errorf("%d documents in outbox_dead", n)
		}
	}},
}
