package heartbeat_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lastmile-gateway/lastmile/heartbeat"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is what a test of leases needs: a Redis of its own and quick leases.
type bundle struct {
	rdb    redis.UniversalClient
	leases *heartbeat.Leases
	faults *faults
}

const key = heartbeat.SocketInstances

// quick leases still outlast a busy machine.
var quick = heartbeat.Config{Lease: 2 * time.Second, Every: 40 * time.Millisecond}

// each runs a test on every Redis at hand.
func each(t *testing.T, run func(t *testing.T, b bundle)) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) { run(t, newBundle(t, s)) })
}

func newBundle(t testing.TB, s *testkit.Redis) bundle {
	f := &faults{}
	rdb := s.Server().Pool(4, nil)
	rdb.AddHook(f)
	t.Cleanup(func() { _ = rdb.Close() })
	return bundle{rdb: rdb, leases: heartbeat.New(rdb, key, quick), faults: f}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	testkit.Eventually(t, 15*time.Second, what, ok)
}

// faults wraps a client's commands.
type faults struct {
	away     atomic.Bool  // nothing reaches Redis
	swallow  atomic.Int32 // so many replies are lost; the commands are done
	reached  atomic.Int32 // commands that Redis did
	awayErrs atomic.Int32
}

var errFault = errors.New("fault: connection broke")

func (f *faults) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *faults) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if f.away.Load() {
			f.awayErrs.Add(1)
			cmd.SetErr(errFault)
			return errFault
		}
		err := next(ctx, cmd)
		if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			return err
		}
		f.reached.Add(1)
		if f.swallow.Load() > 0 && f.swallow.Add(-1) >= 0 {
			cmd.SetErr(errFault)
			return errFault
		}
		return err
	}
}

func (f *faults) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func register(t *testing.T, l *heartbeat.Leases, name string) (protocol.InstanceID, int64) {
	t.Helper()
	id, value, err := l.Register(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return id, value
}

// setScore writes a lease by hand: how tests end one, or let Redis go back.
func (b bundle) setScore(t *testing.T, id protocol.InstanceID, score int64) {
	t.Helper()
	if err := b.rdb.ZAdd(t.Context(), key, redis.Z{Score: float64(score), Member: string(id)}).Err(); err != nil {
		t.Fatal(err)
	}
}

func (b bundle) score(t *testing.T, id protocol.InstanceID) (int64, bool) {
	t.Helper()
	s, err := b.rdb.ZScore(t.Context(), key, string(id)).Result()
	if errors.Is(err, redis.Nil) {
		return 0, false
	}
	if err != nil {
		t.Fatal(err)
	}
	return int64(s), true
}

// snapshot answers how to bring the leases back to what they are now.
func (b bundle) snapshot(t testing.TB) (restore func()) {
	t.Helper()
	leases, err := b.rdb.ZRangeWithScores(t.Context(), key, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		_, err := b.rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			p.Del(t.Context(), key)
			if len(leases) > 0 {
				p.ZAdd(t.Context(), key, leases...)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// keep runs a keeper; stop answers what Run returned.
func keep(t *testing.T, k *heartbeat.Keeper) (done <-chan error, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- k.Run(ctx) }()
	t.Cleanup(cancel)
	return result, cancel
}
