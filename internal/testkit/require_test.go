package testkit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

func TestRequire_skipsFailsOrGoesOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report")
	t.Setenv("LASTMILE_TEST_REPORT", file)
	t.Setenv("LASTMILE_TEST_REQUIRE", "redis, no-such-program-either")

	var skips, fails, there recorder
	skips.run(func(t testing.TB) { testkit.Require(t, "no-such-program") })
	fails.run(func(t testing.TB) { testkit.Require(t, "no-such-program-either") })
	there.run(func(t testing.TB) { testkit.Require(t, "go") })
	if skips.skipped == "" || skips.failure != "" {
		t.Errorf("not named: skipped %q, failed %q", skips.skipped, skips.failure)
	}
	if !strings.Contains(fails.failure, "no-such-program-either is missing") {
		t.Errorf("named: %q", fails.failure)
	}
	if there.skipped != "" || there.failure != "" {
		t.Errorf("there: skipped %q, failed %q", there.skipped, there.failure)
	}
	b, err := os.ReadFile(file)
	if err != nil || string(b) != "skipped\tno-such-program\tTestRecorded\n" {
		t.Errorf("report %q, %v", b, err)
	}
}

func TestEventually(t *testing.T) {
	t.Parallel()
	calls := 0
	testkit.Eventually(t, 10*time.Second, "three calls", func() bool { calls++; return calls == 3 })
	if calls != 3 {
		t.Errorf("%d calls", calls)
	}
	var r recorder
	r.run(func(t testing.TB) {
		testkit.Eventually(t, time.Millisecond, "the impossible", func() bool { return false })
	})
	if !strings.Contains(r.failure, "the impossible") {
		t.Errorf("failed with %q", r.failure)
	}
}
