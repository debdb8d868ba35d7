package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Require lets a test go on only where `what` is there: "redis" and "mongo" mean a real server, "chromium"
// a browser, "docker" a daemon that answers, anything else a program of that name. Where it is missing the
// test is skipped, or fails if LASTMILE_TEST_REQUIRE names it.
func Require(t testing.TB, what string) {
	t.Helper()
	if !have(what) {
		missing(t, what)
	}
}

func have(what string) bool {
	switch what {
	case "redis":
		return findRedis() != fromEmbedded
	case "mongo":
		return findMongo() != fromEmbedded
	case "docker":
		return dockerAnswers()
	case "chromium":
		return Chromium() != ""
	}
	_, err := exec.LookPath(what)
	return err == nil
}

// Chromium is the path of a Chromium-like browser: LASTMILE_TEST_CHROMIUM, else what the PATH has; "" where there is none.
func Chromium() string {
	if path := os.Getenv("LASTMILE_TEST_CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func missing(t testing.TB, what string) {
	t.Helper()
	if required(what) {
		t.Fatalf("%s is missing, and LASTMILE_TEST_REQUIRE names it", what)
	}
	report("skipped", what, t.Name())
	t.Skipf("%s is missing", what)
}

func required(what string) bool {
	list := strings.FieldsFunc(os.Getenv("LASTMILE_TEST_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' })
	return slices.Contains(list, what)
}

// announced are the servers of which it has been said already that they were taken.
var announced sync.Map

// took says once which server tests of this process run against.
func took(what, which string) {
	if _, again := announced.LoadOrStore(what+which, true); again {
		return
	}
	fmt.Fprintf(os.Stderr, "testkit: %s: %s\n", what, which)
	report("took", what, which)
}

// report appends a line for the summary; a file opened to append takes short lines of several processes whole.
func report(fields ...string) {
	path := os.Getenv("LASTMILE_TEST_REPORT")
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintf(os.Stderr, "testkit: write report: %v\n", err)
		return
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Join(fields, "\t") + "\n"); err != nil {
		fmt.Fprintf(os.Stderr, "testkit: write report: %v\n", err)
	}
}
