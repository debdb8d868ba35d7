package testkit_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv("TESTKIT_PARENT") != "" {
		parent()
	}
	goleak.VerifyTestMain(m)
}

// parent is what the test of ended parents runs: it starts a child by the kit, tells its pid and waits to be killed.
func parent() {
	testing.Init()
	t := &recorder{}
	p := testkit.Start(t, exec.Command("sleep", "600"))
	fmt.Println(p.Pid())
	select {}
}

// recorder stands in for a test that fails or is skipped.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failure  string
	skipped  string
	cleanups []func()
}

func (r *recorder) Helper()                      {}
func (r *recorder) Name() string                 { return "TestRecorded" }
func (r *recorder) Logf(string, ...any)          {}
func (r *recorder) Failed() bool                 { return r.failure != "" }
func (r *recorder) Cleanup(f func())             { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Fatal(args ...any)            { r.end(&r.failure, fmt.Sprint(args...)) }
func (r *recorder) Fatalf(f string, args ...any) { r.end(&r.failure, fmt.Sprintf(f, args...)) }
func (r *recorder) Skipf(f string, args ...any)  { r.end(&r.skipped, fmt.Sprintf(f, args...)) }

func (r *recorder) end(how *string, message string) {
	r.mu.Lock()
	*how = message
	r.mu.Unlock()
	runtime.Goexit()
}

// run runs f as the body of such a test and its cleanups after it.
func (r *recorder) run(f func(testing.TB)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}
