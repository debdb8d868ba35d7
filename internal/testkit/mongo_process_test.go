package testkit_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// The keeper is all that ends a mongod which the tests of a process share; here it keeps a stand-in.
func TestMongodKeeper_endsWithItsInput(t *testing.T) {
	t.Parallel()
	programs, data := t.TempDir(), filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	stand := "#!/bin/sh\necho $$ $* >" + programs + "/started\nexec sleep 600\n"
	if err := os.WriteFile(filepath.Join(programs, "mongod"), []byte(stand), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", testkit.MongodKeeper, "sh", data, "--port", "1234")
	cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"))
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	keeper := testkit.Start(t, cmd)
	var started string
	testkit.Eventually(t, soon, "it has started", func() bool {
		b, _ := os.ReadFile(programs + "/started")
		started = string(b)
		return strings.HasSuffix(started, "\n")
	})
	pid, args, _ := strings.Cut(strings.TrimSpace(started), " ")
	if want := "--dbpath " + data + " --port 1234"; args != want {
		t.Errorf("started with %q, want %q", args, want)
	}
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	if err := keeper.Wait(t.Context()); err != nil {
		t.Errorf("the keeper ended with %v", err)
	}
	if _, err := os.Stat("/proc/" + pid); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pid %s is still there: %v", pid, err)
	}
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its files are still there: %v", err)
	}
}

func TestBinary_runs(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes a build")
	}
	path := testkit.Binary(t)
	if again := testkit.Binary(t); again != path {
		t.Errorf("built twice: %s, %s", path, again)
	}
	before := time.Now()
	if out, err := exec.CommandContext(t.Context(), path, "version").CombinedOutput(); err != nil || len(out) == 0 {
		t.Errorf("version: %v after %s\n%s", err, time.Since(before), out)
	}
}
