package testkit

import (
	"testing"
	"time"
)

// Eventually calls ok until it answers true, and fails the test if that takes longer than within. It is
// the one place in tests that waits by the clock, for what only another process can tell.
func Eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for pause := time.Millisecond; !ok(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
		time.Sleep(pause)
	}
}
