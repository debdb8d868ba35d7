package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
)

// stage lets a program use what is made for tests: it is a testing.TB whose test is the run. Fatal ends
// the run by a panic that play recovers, so only the goroutine that plays may call it.
type stage struct {
	testing.TB // nil: what is not written below is not used

	out    io.Writer
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

// over is what Fatal panics with.
type over struct{}

func newStage(ctx context.Context, out io.Writer) *stage {
	ctx, cancel := context.WithCancel(ctx)
	return &stage{out: out, ctx: ctx, cancel: cancel}
}

// play runs f, cleans up, and says whether f came to its end.
func (s *stage) play(f func(testing.TB)) (complete bool) {
	defer s.clean()
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(over); !ok {
				panic(r)
			}
			complete = false
		}
	}()
	f(s)
	return !s.Failed()
}

func (s *stage) clean() {
	s.cancel()
	for {
		s.mu.Lock()
		n := len(s.cleanups)
		if n == 0 {
			s.mu.Unlock()
			return
		}
		last := s.cleanups[n-1]
		s.cleanups = s.cleanups[:n-1]
		s.mu.Unlock()
		last()
	}
}

func (s *stage) Helper()                  {}
func (s *stage) Name() string             { return "chaos" }
func (s *stage) Context() context.Context { return s.ctx }

func (s *stage) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

func (s *stage) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *stage) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = true
}

func (s *stage) Log(args ...any)            { fmt.Fprintln(s.out, args...) }
func (s *stage) Logf(f string, args ...any) { fmt.Fprintf(s.out, f+"\n", args...) }

func (s *stage) Error(args ...any) { s.fail(); s.Log(args...) }

func (s *stage) Errorf(f string, args ...any) { s.fail(); s.Logf(f, args...) }

func (s *stage) FailNow() { s.fail(); panic(over{}) }

func (s *stage) Fatal(args ...any) { s.Log(args...); s.FailNow() }

func (s *stage) Fatalf(f string, args ...any) { s.Logf(f, args...); s.FailNow() }

// Skipf is what a missing server asks for; here nothing can be shown without it.
func (s *stage) Skipf(f string, args ...any) { s.Fatalf(f, args...) }

func (s *stage) TempDir() string {
	dir, err := os.MkdirTemp("", "lastmile-chaos-")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
