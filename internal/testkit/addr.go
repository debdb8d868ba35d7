package testkit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Ports below the range that kernels draw from (32768 on Linux, 49152 elsewhere) for connections and for
// listeners on port 0, and above those of well-known services: nobody gets one by chance.
const (
	firstPort = 20_000
	ports     = 12_000
)

// FreeAddr is an address on loopback that nothing listens on and that no other test, of this or another
// process, gets until this one ends.
func FreeAddr(t testing.TB) string {
	t.Helper()
	release, port, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func reservePort() (release func(), port int, err error) {
	for range 200 {
		port := firstPort + rand.IntN(ports)
		release, err := lock("port-" + strconv.Itoa(port))
		if errors.Is(err, errLocked) {
			continue
		}
		if err != nil {
			return nil, 0, fmt.Errorf("reserve port: %w", err)
		}
		if listens(net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) {
			return release, port, nil
		}
		release()
	}
	return nil, 0, errors.New("reserve port: no free one found in 200 tries")
}

// listens says whether one could listen on addr now.
func listens(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

var errLocked = errors.New("locked by another test")

// lock takes a lock between processes by its name. The kernel lets it go when the process ends, however that may be.
func lock(name string) (release func(), err error) {
	f, err := lockFile(name)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return func() { _ = f.Close() }, nil
}

// lockWait is lock that waits for whoever holds it.
func lockWait(name string) (release func(), err error) {
	f, err := lockFile(name)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return func() { _ = f.Close() }, nil
}

// lockFile opens the file of a lock. The files stay: removing one that somebody is about to lock would make two locks of one.
func lockFile(name string) (*os.File, error) {
	dir := filepath.Join(os.TempDir(), "lastmile-test-locks")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("make lock folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	return f, nil
}
