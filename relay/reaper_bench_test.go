package relay_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/inbox"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// A dead instance with 10,000 users and 50,000 entries, pending and unread, half of
// whose users are at another instance and the others away.
func BenchmarkReap(b *testing.B) {
	m := newMorgue(b, testkit.FirstRedis(b))
	ctx := context.Background()
	const entries, people = 50_000, 10_000
	for round := range b.N {
		b.StopTimer()
		dead, other := m.instance(fmt.Sprint("dead", round)), m.instance(fmt.Sprint("other", round))
		all := make([]protocol.UserID, people)
		for i := range all {
			all[i] = protocol.UserID(fmt.Sprintf("u%d-%d", round, i))
		}
		dead.connect(all...)
		other.connect(all[:people/2]...)
		epoch := protocol.NewEpoch()
		p := m.rdb.Pipeline()
		for i := range entries {
			e := event(i, all[i%people])
			e.Prepare()
			env, err := protocol.NewEnvelope(e)
			if err != nil {
				b.Fatal(err)
			}
			pair := protocol.Pair{User: all[i%people], Epoch: epoch, Seq: protocol.Seq(i/people + 1)}
			inbox.QueueAppend(ctx, p, dead.id, inbox.Entry{Batch: protocol.Batch{Items: []protocol.Item{{Event: env, Pairs: []protocol.Pair{pair}}}}})
			if p.Len() == 1000 {
				benchExec(b, p)
			}
		}
		benchExec(b, p)
		m.take(dead, entries/2)
		m.die(dead)
		r := m.reaper("r")
		b.StartTimer()
		m.reap(r, dead)
		b.StopTimer()
		h := m.history()[0]
		if h.Moved != entries/2 || h.Notified != entries/2 {
			b.Fatalf("history %+v", h)
		}
	}
	b.ReportMetric(entries*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}

func benchExec(b *testing.B, p redis.Pipeliner) {
	b.Helper()
	if _, err := p.Exec(context.Background()); err != nil {
		b.Fatal(err)
	}
}
