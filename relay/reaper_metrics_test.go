package relay_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/relay"
)

// What is reaped is counted by what became of it.
func TestReap_Metrics(t *testing.T) {
	t.Parallel()
	m := newMorgue(t, testkit.FirstRedis(t))
	a, b := m.instance("a"), m.instance("b")
	m.full(a, b, 0)
	cfg, reg := quick("r"), prometheus.NewRegistry()
	cfg.Metrics = reg
	pool := m.redis.Server().Pool(2, nil)
	defer pool.Close()
	m.reap(relay.NewReaper(cfg, pool, m.redis.Server().Conn, protocol.NewInstanceID("r"), func() int64 { return 0 }), a)
	h := m.history()[0]
	for name, want := range map[string]float64{
		"lastmile_relay_reaps_total done":                1,
		"lastmile_relay_reaped_entries_total handed_on":  float64(h.Entries - h.Bad - h.Lost - h.Controls),
		"lastmile_relay_reaped_entries_total bad":        1,
		"lastmile_relay_reaped_entries_total control":    1,
		"lastmile_relay_reaped_entries_total lost":       float64(h.Lost),
		"lastmile_relay_reaped_pairs_total inbox":        3,
		"lastmile_relay_reaped_pairs_total notification": 3,
		"lastmile_relay_reaped_pairs_total dropped":      0,
		"lastmile_handed_on_pairs_total notified":        3,
		"lastmile_dead_letters_total socket:dead":        1,
	} {
		if got := counted(t, reg)[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// counted are all counters of one label, by name and label.
func counted(t testing.TB, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, c := range f.GetMetric() {
			if len(c.GetLabel()) == 1 {
				all[f.GetName()+" "+c.GetLabel()[0].GetValue()] = c.GetCounter().GetValue()
			}
		}
	}
	return all
}
