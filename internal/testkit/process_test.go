package testkit_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

func TestProcess_outputAndEnd(t *testing.T) {
	t.Parallel()
	p := testkit.Start(t, exec.Command("sh", "-c", "echo out; echo err >&2; exit 3"))
	err := p.Wait(t.Context())
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("ended with %v", err)
	}
	if out := p.Output(); out != "out\nerr\n" {
		t.Errorf("output %q", out)
	}
}

func TestProcess_outputKeepsTheEnd(t *testing.T) {
	t.Parallel()
	p := testkit.Start(t, exec.Command("sh", "-c", "head -c 5000000 /dev/zero | tr '\\0' x; echo END"))
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := p.Output(); len(out) != 1<<20 || !strings.HasSuffix(out, "xEND\n") {
		t.Errorf("%d bytes kept, ending in %q", len(out), out[max(0, len(out)-10):])
	}
}

func TestProcess_signals(t *testing.T) {
	t.Parallel()
	p := testkit.Start(t, exec.Command("sh", "-c", `trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done`))
	testkit.Eventually(t, 10*time.Second, "it is ready", func() bool { return strings.Contains(p.Output(), "ready") })

	p.Freeze(t)
	testkit.Eventually(t, 10*time.Second, "it is stopped", func() bool { return state(t, p.Pid()) == "T" })
	p.Terminate(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a frozen process ended: %v", err)
	}
	p.Thaw(t)
	if err := p.Wait(t.Context()); err != nil {
		t.Errorf("ended with %v", err)
	}
	if !strings.HasSuffix(p.Output(), "bye\n") {
		t.Errorf("output %q", p.Output())
	}
}

func TestProcess_killedAtTheTestsEnd(t *testing.T) {
	t.Parallel()
	var r recorder
	var p *testkit.Process
	r.run(func(t testing.TB) {
		p = testkit.Start(t, exec.Command("sleep", "600"))
		p.Freeze(t)
	})
	if err := syscall.Kill(p.Pid(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("pid %d is still there: %v", p.Pid(), err)
	}
}

// A test binary that is killed, by a timeout for example, leaves nothing behind.
func TestProcess_endsWithItsParent(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("only Linux ends children with their parent")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TESTKIT_PARENT=1")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	parent := testkit.Start(t, cmd)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("read the child's pid: %v\n%s", err, parent.Output())
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	parent.Kill(t)
	testkit.Eventually(t, 10*time.Second, "the child has ended", func() bool { s := state(t, child); return s == "" || s == "Z" })
}

// state is the process' one-letter state; "" when it is gone.
func state(t testing.TB, pid int) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:1]
}
