package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPlan_dependsOnTheSeedAlone(t *testing.T) {
	t.Parallel()
	cfg := Config{Seed: 7, Faults: 200, For: time.Minute}
	one, same := plan(cfg), plan(cfg)
	cfg.Seed = 8
	other := plan(cfg)
	differ := false
	for i := range one {
		if one[i] != same[i] {
			t.Fatalf("fault %d: %+v, and %+v by the same seed", i, one[i], same[i])
		}
		differ = differ || one[i] != other[i]
	}
	if !differ {
		t.Error("two seeds make the same schedule")
	}
}

func TestPlan_hasEachKindAndKeepsItsTime(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		cfg := Config{Seed: seed, Faults: 60, For: 3 * time.Minute}
		schedule := plan(cfg)
		if len(schedule) != cfg.Faults {
			t.Fatalf("seed %d: %d faults, want %d", seed, len(schedule), cfg.Faults)
		}
		count := map[string]int{}
		for i, f := range schedule {
			count[f.kind.name]++
			if f.at < 0 || f.at >= cfg.For || i > 0 && f.at < schedule[i-1].at {
				t.Fatalf("seed %d: fault %d begins at %s", seed, i, f.at)
			}
			if f.last < f.kind.least || f.last > f.kind.most {
				t.Fatalf("seed %d: %s lasts %s", seed, f.kind.name, f.last)
			}
		}
		for _, k := range kinds {
			if count[k.name] == 0 {
				t.Errorf("seed %d: no %s among 60", seed, k.name)
			}
		}
	}
}

func TestPlan_drawsOnlyFromTheKindsAskedFor(t *testing.T) {
	t.Parallel()
	for _, f := range plan(Config{Seed: 1, Faults: 20, For: time.Minute, Only: []string{"relay-kill", "redis-cut"}}) {
		if !slices.Contains([]string{"relay-kill", "redis-cut"}, f.kind.name) {
			t.Errorf("a %s", f.kind.name)
		}
	}
}

func TestConfig_namesAllThatIsWrong(t *testing.T) {
	t.Parallel()
	err := Config{Faults: -1, Users: 1, Only: []string{"earthquake"}}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"-faults", "-for", "-settle", "-users", "-rate", "earthquake"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
}

func TestSpans_touch(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var s spans
	s.end(s.since("a", at(10)), at(20))
	s.since("b", at(40)) // lasts
	for _, c := range []struct {
		from, to int
		want     bool
	}{{0, 9, false}, {0, 10, true}, {12, 13, true}, {20, 30, true}, {21, 39, false}, {5, 50, true}, {60, 70, true}} {
		if got := s.touch(at(c.from), at(c.to)); got != c.want {
			t.Errorf("touch %d to %d: %v", c.from, c.to, got)
		}
	}
}
