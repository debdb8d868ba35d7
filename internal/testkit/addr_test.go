package testkit_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

func TestFreeAddr_isNeverGivenTwice(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]bool{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				addr := testkit.FreeAddr(t)
				mu.Lock()
				if seen[addr] {
					t.Errorf("%s twice", addr)
				}
				seen[addr] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for addr := range seen {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Errorf("%s is not free: %v", addr, err)
			continue
		}
		_ = l.Close()
	}
}

// Another process that asks for any port must not get a reserved one.
func TestFreeAddr_isOutsideTheKernelsRange(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(testkit.FreeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 20_000 || n >= 32_000 {
		t.Errorf("port %s, %v", port, err)
	}
}

func TestLock_excludesAndIsLetGo(t *testing.T) {
	t.Parallel()
	release, err := testkit.Lock("selftest-" + strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := testkit.Lock("selftest-" + strconv.Itoa(os.Getpid())); !errors.Is(err, testkit.ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	release()
	again, err := testkit.Lock("selftest-" + strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatalf("not let go: %v", err)
	}
	again()
}

func TestByContent_namesEachBuildAndKeepsThatInUse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "program")
	write := func(content string) string {
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		named, err := testkit.ByContent(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil { // the go command replaces the file as well
			t.Fatal(err)
		}
		return named
	}
	first := write("one")
	if again := write("one"); again != first {
		t.Errorf("the same content is %s and %s", first, again)
	}
	second := write("two")
	if b, err := os.ReadFile(second); err != nil || string(b) != "two" || second == first {
		t.Errorf("%s holds %q, %v", second, b, err)
	}
	if _, err := os.Stat(first); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the first build is still there: %v", err)
	}
}
