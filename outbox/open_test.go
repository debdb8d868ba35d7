package outbox_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/outbox/outboxtest"
	"github.com/lastmile-gateway/lastmile/protocol"
)

func open(t *testing.T, url string, cfg outbox.Config) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	store, err := outbox.Open(ctx, url, cfg)
	if err == nil {
		t.Cleanup(func() { _ = store.Close(context.Background()) })
	}
	return err
}

// withHello edits what the server says about itself, in the driver's own handshake too.
func withHello(edit func(bson.D) bson.D) outboxtest.Rule {
	return func(c outboxtest.Command) outboxtest.Verdict {
		if c.Name != "hello" && c.Name != "isMaster" && c.Name != "ismaster" {
			return outboxtest.Verdict{}
		}
		return outboxtest.Verdict{Edit: func(reply bson.Raw) bson.Raw {
			var doc bson.D
			if bson.Unmarshal(reply, &doc) != nil {
				return reply
			}
			raw, err := bson.Marshal(edit(doc))
			if err != nil {
				return reply
			}
			return raw
		}}
	}
}

func without(d bson.D, keys ...string) bson.D {
	var out bson.D
	for _, e := range d {
		if !strings.Contains(" "+strings.Join(keys, " ")+" ", " "+e.Key+" ") {
			out = append(out, e)
		}
	}
	return out
}

func TestOpen_SaysWhatToDo(t *testing.T) {
	t.Parallel()
	alone := func(d bson.D) bson.D {
		return without(d, "setName", "hosts", "me", "primary", "setVersion", "electionId")
	}
	for _, f := range []struct {
		name string
		edit func(bson.D) bson.D
		want error
		says []string
	}{
		{"standalone", alone, outbox.ErrNotReplicaSet, []string{"--replSet", "rs.initiate()"}},
		{"not initiated", func(d bson.D) bson.D { return append(alone(d), bson.E{Key: "isreplicaset", Value: true}) },
			outbox.ErrNotReplicaSet, []string{"rs.initiate()"}},
		{"MongoDB 4.2", func(d bson.D) bson.D {
			return append(without(d, "maxWireVersion"), bson.E{Key: "maxWireVersion", Value: int32(8)})
		}, outbox.ErrTooOld, []string{"4.4"}},
		{"MongoDB 3.6", func(d bson.D) bson.D {
			return append(without(d, "maxWireVersion"), bson.E{Key: "maxWireVersion", Value: int32(6)})
		}, outbox.ErrTooOld, []string{"4.4"}},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			url := newMongo(t)
			proxy := outboxtest.NewProxy(t, url)
			proxy.Set(withHello(f.edit))
			url = strings.Replace(proxy.URL(url), "replicaSet=rs0", "", 1)
			err := open(t, url, outbox.Config{ConnectTimeout: 2 * time.Second})
			if !errors.Is(err, f.want) {
				t.Fatalf("got %v", err)
			}
			for _, text := range f.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
		})
	}
}

func TestOpen_ShardedIsWelcome(t *testing.T) {
	t.Parallel()
	url := newMongo(t)
	proxy := outboxtest.NewProxy(t, url)
	proxy.Set(withHello(func(d bson.D) bson.D {
		return append(without(d, "setName", "hosts", "me", "primary"), bson.E{Key: "msg", Value: "isdbgrid"})
	}))
	if err := open(t, strings.Replace(proxy.URL(url), "replicaSet=rs0", "", 1), outbox.Config{}); err != nil {
		t.Error(err)
	}
}

// MongoDB 4.4.0 and 4.4.1 know `hello` by its older name only.
func TestOpen_FirstReleasesOf44(t *testing.T) {
	t.Parallel()
	url := newMongo(t)
	proxy := outboxtest.NewProxy(t, url)
	proxy.Set(func(c outboxtest.Command) outboxtest.Verdict {
		// The driver asks in the name that it was told to.
		if ours := c.Body.Lookup("lsid").Type != 0; ours && c.Name == "hello" {
			return outboxtest.Verdict{Reply: failure(59, "CommandNotFound")}
		}
		return outboxtest.Verdict{}
	})
	url = strings.Replace(proxy.URL(url), "replicaSet=rs0", "", 1)
	if err := open(t, url, outbox.Config{ConnectTimeout: 2 * time.Second}); err != nil {
		t.Error(err)
	}
}

func TestOpen_NobodyThere(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	began := time.Now()
	err = open(t, "mongodb://root:s3cret@"+addr+"/x", outbox.Config{ConnectTimeout: 300 * time.Millisecond})
	if !errors.Is(err, outbox.ErrUnreachable) || !strings.Contains(err.Error(), addr) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("after %s", took)
	}
}

func TestOpen_RefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "http://x", "mongodb://", "mongodb://root:s3cret@h:port:port/x", "mongodb://root:s3cret@h/x?w=%zz", "mongodb://root:s3/cret@h/"} {
		err := open(t, url, outbox.Config{ConnectTimeout: 200 * time.Millisecond})
		if err == nil || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "s3/cret") {
			t.Errorf("%q: %v", url, err)
		}
	}
	err := open(t, "mongodb://h/", outbox.Config{AwaitTime: -1, BatchSize: -1, Collection: outbox.DeadCollection})
	for _, field := range []string{"AwaitTime", "BatchSize", "Collection"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

// A timeoutMS in the URL would end every change stream; several stores may share a registerer.
func TestOpen_StreamOutlivesTheURLsTimeout(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	url := newMongo(t) + "&timeoutMS=150"
	b := outboxtest.Setup(t, url, outbox.Config{Metrics: reg, AwaitTime: 200 * time.Millisecond})
	if err := open(t, url, outbox.Config{Metrics: reg}); err != nil {
		t.Error(err)
	}
	st := b.Watch(outbox.WatchOptions{})
	for range 4 {
		b.Quiet(st)
		if err := st.Trouble(); err != nil {
			t.Fatal(err)
		}
	}
	expect(b, st)
}

// A17: opening may take as long as the server's oplog is long; ConnectTimeout doesn't cut it off.
func TestCase_A17_SlowOpening(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{ConnectTimeout: 300 * time.Millisecond})
	proxy.Set(func(c outboxtest.Command) outboxtest.Verdict {
		if c.OpensStream() {
			<-time.After(time.Second)
		}
		return outboxtest.Verdict{}
	})
	expect(b, b.Watch(outbox.WatchOptions{}))
}

// Another member may not have what the primary confirmed: an event that is missing there is not missing.
func TestOpen_ReadsFromThePrimaryWhateverTheURL(t *testing.T) {
	t.Parallel()
	url := newMongo(t)
	proxy := outboxtest.NewProxy(t, url)
	var asked, elsewhere atomic.Int32
	proxy.Set(func(c outboxtest.Command) outboxtest.Verdict {
		mode, ok := c.Body.Lookup("$readPreference", "mode").StringValueOK()
		if ok && (c.Name == "find" || c.Name == "aggregate" || c.Name == "listCollections") {
			asked.Add(1)
			if strings.HasPrefix(mode, "secondary") {
				elsewhere.Add(1)
			}
		}
		return outboxtest.Verdict{}
	})
	b := outboxtest.Setup(t, proxy.URL(url)+"&readPreference=secondaryPreferred&maxStalenessSeconds=120", outbox.Config{})
	st := b.Watch(outbox.WatchOptions{})
	expect(b, st)
	if _, err := b.Store.Fetch(b.Ctx, protocol.NewEventID()); err != nil {
		t.Error(err)
	}
	if asked.Load() < 3 || elsewhere.Load() > 0 {
		t.Errorf("%d of %d reads may go elsewhere", elsewhere.Load(), asked.Load())
	}
}
