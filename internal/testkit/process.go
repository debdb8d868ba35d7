package testkit

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a child process that ends with its test.
type Process struct {
	cmd    *exec.Cmd
	output *output
	done   chan struct{} // closed when it has ended and its output is read
	err    error         // of the end; read after done
}

// Start runs cmd. Where cmd has no Stdout or Stderr of its own they go to Output. The process is killed
// at the test's end, and its output shown if the test failed.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p, err := start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("output of %s:\n%s", p, p.Output())
		}
	})
	return p
}

func start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, output: &output{}, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p.output
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p.output
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	endWithParent(cmd.SysProcAttr)
	cmd.WaitDelay = 5 * time.Second // a grandchild may hold the pipes
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// Kill ends the process by SIGKILL and waits for its end.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	p.kill()
}

func (p *Process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// Freeze stops the process by SIGSTOP: its connections stay open and nothing answers.
func (p *Process) Freeze(t testing.TB) { t.Helper(); p.signal(t, syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (p *Process) Thaw(t testing.TB) { t.Helper(); p.signal(t, syscall.SIGCONT) }

// Terminate asks the process to end by SIGTERM; see Wait.
func (p *Process) Terminate(t testing.TB) { t.Helper(); p.signal(t, syscall.SIGTERM) }

// Interrupt sends SIGINT, as Ctrl-C does.
func (p *Process) Interrupt(t testing.TB) { t.Helper(); p.signal(t, syscall.SIGINT) }

func (p *Process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("send %s to %s: %v\n%s", s, p, err, p.Output())
	}
}

// Wait waits for the process to end. It answers nil after a clean end, else its *exec.ExitError; or the
// cause of ctx, if that ends first.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("wait for %s: %w", p, context.Cause(ctx))
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Pid is its process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Output is the last MiB of what it has written so far.
func (p *Process) Output() string { return p.output.String() }

// String names it in messages.
func (p *Process) String() string { return fmt.Sprintf("%s (pid %d)", p.cmd.Path, p.Pid()) }

// ended says whether it has.
func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

const maxOutput = 1 << 20

// output keeps the end of what is written to it.
type output struct {
	mu   sync.Mutex
	kept strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kept.Len()+len(b) > 2*maxOutput {
		end := o.kept.String()
		end = end[max(0, len(end)-maxOutput):]
		o.kept.Reset()
		o.kept.WriteString(end)
	}
	o.kept.Write(b)
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.kept.String()
	return strings.Clone(s[max(0, len(s)-maxOutput):])
}
