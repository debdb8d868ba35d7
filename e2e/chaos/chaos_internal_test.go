package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The mongo driver's and net/http's idle connections end with the process.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
	)
}

// A short run of the proof. `make chaos` has more faults, all their kinds, and more users.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	testkit.Require(t, "redis-server")
	report := Run(t, Config{
		Seed: 1, Faults: 8, For: 14 * time.Second, Settle: 40 * time.Second, Users: 60, Rate: 12, Out: os.Stderr,
		Only: []string{"socket-kill", "socket-blink", "socket-rolling", "relay-kill", "redis-restart", "redis-cut", "client-cut", "client-drop"},
	})
	var table strings.Builder
	report.Print(&table)
	if report.Violations() > 0 {
		t.Fatalf("violations:\n%s", table.String())
	}
	t.Log(table.String())
}
