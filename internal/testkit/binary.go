package testkit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Binary is the path of the lastmile command, built once a run, with the race detector if the test has it.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var binary = sync.OnceValues(buildBinary)

// buildBinary lets the go command see for itself whether the last build is current, under a lock, since
// the test binaries of several packages run at once. Each build gets a name by its content: a
// program that runs can't be written over.
func buildBinary() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".cache", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make folder for the binary: %w", err)
	}
	sum := sha256.Sum256([]byte(root))
	release, err := lockWait("build-" + hex.EncodeToString(sum[:6]))
	if err != nil {
		return "", err
	}
	defer release()
	built := filepath.Join(dir, "lastmile")
	args := []string{"build", "-o"}
	if raceEnabled {
		built += "-race"
		args = []string{"build", "-race", "-o"}
	}
	cmd := exec.Command("go", append(args, built, "./cmd/lastmile")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build cmd/lastmile: %w\n%s", err, out)
	}
	return byContent(built)
}

// byContent links a file to a name that tells its content, and removes the names of earlier contents.
func byContent(path string) (string, error) {
	sum, err := hashFile(path)
	if err != nil {
		return "", err
	}
	named := path + "." + sum
	older, _ := filepath.Glob(path + ".*") // the pattern is good
	for _, o := range older {
		if o != named {
			_ = os.Remove(o) // one that runs keeps its inode
		}
	}
	if _, err := os.Stat(named); err == nil {
		return named, nil
	}
	if err := os.Link(path, named); err != nil {
		return "", fmt.Errorf("name the binary: %w", err)
	}
	return named, nil
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("hash the binary: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("hash the binary: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// Root is the folder of the module that the test belongs to.
func Root() (string, error) { return root() }

var root = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if mod == "" || mod == os.DevNull {
		return "", errors.New("find the module: the test does not run inside one")
	}
	return filepath.Dir(mod), nil
})
