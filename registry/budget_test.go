package registry_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

// What a user costs Redis in memory: 1 KiB online with 20 events, 10 KiB with a full log.
func TestBudget_MemoryOfAUser(t *testing.T) {
	t.Parallel()
	s := testkit.RealRedis(t)
	rdb := resp2(t, s)
	r := registry.New(rdb, registry.Config{})
	at := registry.Location{Field: field(), Since: time.Now(), Device: strings.Repeat("d", protocol.MaxDevice)}
	const user = protocol.UserID("user-0123456789abcdef")
	if _, err := r.Connect(t.Context(), user, registry.ConnectRequest{At: at}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ events, limit int64 }{{20, 1 << 10}, {protocol.MaxLog - 1, 10 << 10}} {
		appendTo(t, r, rdb, step.events, user)
		var bytes int64
		for _, k := range []string{"at", "log"} {
			n, err := rdb.MemoryUsage(t.Context(), "user:{"+string(user)+"}:"+k, 0).Result()
			if err != nil {
				t.Fatal(err)
			}
			bytes += n
		}
		if bytes > step.limit {
			t.Errorf("%d bytes with %d events, want at most %d", bytes, step.events, step.limit)
		}
	}
}

// appendTo appends until the user's log has its nth event.
func appendTo(t testing.TB, r *registry.Registry, rdb redis.UniversalClient, n int64, user protocol.UserID) {
	t.Helper()
	for {
		p := rdb.Pipeline()
		c := r.QueueAppend(t.Context(), p, user, protocol.NewEventID())
		if _, err := p.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Result(); err != nil || int64(got.Seq) >= n {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}

// BenchmarkAppend routes to 64 users a pipeline, and reports what each costs Redis
// ("redis-µs/op") beside what it costs here.
func BenchmarkAppend(b *testing.B) {
	s := testkit.OwnRedis(b)
	rdb := resp2(b, s)
	r := registry.New(rdb, registry.Config{})
	if err := r.Load(b.Context(), rdb); err != nil {
		b.Fatal(err)
	}
	users := make([]protocol.UserID, 640)
	for i := range users {
		users[i] = protocol.UserID(fmt.Sprintf("user-%d", i))
		at := registry.Location{Field: field(), Since: time.Now()}
		if _, err := r.Connect(b.Context(), users[i], registry.ConnectRequest{At: at}); err != nil {
			b.Fatal(err)
		}
	}
	type queue func(p redis.Pipeliner, u protocol.UserID, id protocol.EventID) *registry.RouteCmd
	for name, q := range map[string]queue{
		"plain": func(p redis.Pipeliner, u protocol.UserID, id protocol.EventID) *registry.RouteCmd {
			return r.QueueAppend(b.Context(), p, u, id)
		},
		"careful": func(p redis.Pipeliner, u protocol.UserID, id protocol.EventID) *registry.RouteCmd {
			return r.QueueAppendCarefully(b.Context(), p, u, id)
		},
		"locate": func(p redis.Pipeliner, u protocol.UserID, _ protocol.EventID) *registry.RouteCmd {
			return r.QueueLocate(b.Context(), p, u)
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			before := cpu(b, rdb)
			for i := 0; i < b.N; {
				p := rdb.Pipeline()
				var cmds []*registry.RouteCmd
				for range min(64, b.N-i) {
					cmds = append(cmds, q(p, users[i%len(users)], protocol.NewEventID()))
					i++
				}
				if _, err := p.Exec(b.Context()); err != nil {
					b.Fatal(err)
				}
				trims := rdb.Pipeline()
				for j, c := range cmds {
					got, err := c.Result()
					if err != nil {
						b.Fatal(err)
					}
					if got.Trim {
						r.QueueTrim(b.Context(), trims, users[(i-len(cmds)+j)%len(users)])
					}
				}
				if _, err := trims.Exec(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((cpu(b, rdb)-before)*1e6/float64(b.N), "redis-µs/op")
		})
	}
}

// cpu is what Redis has used, in seconds.
func cpu(b *testing.B, rdb redis.UniversalClient) float64 {
	b.Helper()
	info, err := rdb.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	var total float64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			total += n
		}
	}
	return total
}
