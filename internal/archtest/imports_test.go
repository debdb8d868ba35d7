package archtest_test

import (
	"errors"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const module = "github.com/lastmile-gateway/lastmile/"

// arrows says what of ours the shipped code of a package, and of what lies below it, may import besides itself.
var arrows = map[string][]string{
	"protocol":           {},
	"outbox":             {"protocol"},
	"registry":           {"protocol"},
	"heartbeat":          {"protocol"}, // for the type of its members
	"internal/inbox":     {"protocol", "registry", "heartbeat", "internal/redisconn"},
	"relay":              {"protocol", "outbox", "registry", "heartbeat", "internal/inbox", "internal/redisconn"},
	"socket":             {"protocol", "outbox", "registry", "heartbeat", "internal/inbox", "internal/redisconn"},
	"web":                {"protocol", "outbox"},
	"cmd/lastmile":       {"*"},
	"internal/embedded":  {},
	"internal/redisconn": {},
	"internal/telemetry": {},
	"internal/testkit":   {"internal/embedded", "internal/redisconn"}, // for tests
	"internal/archtest":  {},
	"e2e":                {},
}

// The conformance suites import testing and what makes their fixtures; they belong to tests. So does chaos,
// which is a test that is long enough to be a program: it starts processes by testkit, and reads the outbox
// by the driver, since a checker that used ours would share its mistakes.
var suites = []string{"outbox/outboxtest", "registry/registrytest", "relay/relaytest", "e2e/chaos"}

// driverUsers may import the MongoDB driver in shipped code.
var driverUsers = []string{"outbox", "internal/embedded", "web/chat", "internal/testkit"}

// testOnly are modules that must not be in the binary, however indirectly.
var testOnly = []string{
	"go.uber.org/goleak", "pgregory.net/rapid", "github.com/google/go-cmp", "github.com/chromedp/", "github.com/testcontainers/",
	"github.com/santhosh-tekuri/jsonschema", module + "internal/testkit", module + "outbox/outboxtest", module + "registry/registrytest",
}

// file is a source file with what it imports.
type file struct {
	path    string // from the root, with slashes
	imports []string
}

func (f file) dir() string { return path.Dir(f.path) }
func (f file) test() bool  { return strings.HasSuffix(f.path, "_test.go") || in(f.dir(), suites) }
func (f file) ours() []string {
	var out []string
	for _, i := range f.imports {
		if rest, ok := strings.CutPrefix(i, module); ok {
			out = append(out, rest)
		}
	}
	return out
}

// in says whether a package is one of a list or lies below one.
func in(pkg string, list []string) bool {
	return slices.ContainsFunc(list, func(l string) bool { return pkg == l || strings.HasPrefix(pkg, l+"/") })
}

func TestImports_followTheArrows(t *testing.T) {
	t.Parallel()
	for _, f := range files(t) {
		if f.test() {
			continue
		}
		from, allowed, ok := row(f.dir())
		if !ok {
			t.Errorf("%s: its package is in no row of the table", f.path)
			continue
		}
		for _, to := range f.ours() {
			if !in(to, []string{from}) && !in(to, allowed) && !slices.Contains(allowed, "*") {
				t.Errorf("%s imports %s; %s may import only %v of ours", f.path, to, from, allowed)
			}
		}
	}
}

// row finds the row that covers a package: the longest name.
func row(dir string) (name string, allowed []string, ok bool) {
	for n, a := range arrows {
		if in(dir, []string{n}) && len(n) >= len(name) {
			name, allowed, ok = n, a, true
		}
	}
	return name, allowed, ok
}

func TestImports_driverStaysInside(t *testing.T) {
	t.Parallel()
	for _, f := range files(t) {
		if f.test() || in(f.dir(), driverUsers) {
			continue
		}
		for _, i := range f.imports {
			if strings.HasPrefix(i, "go.mongodb.org/mongo-driver") {
				t.Errorf("%s imports %s; only %v may", f.path, i, driverUsers)
			}
		}
	}
}

// Only the embedded servers may use their engines, and the driver's first generation, which lungo needs and its authors gave up.
func TestImports_enginesAreForTheEmbeddedServers(t *testing.T) {
	t.Parallel()
	for _, f := range files(t) {
		if f.test() || in(f.dir(), []string{"internal/embedded"}) {
			continue
		}
		for _, i := range f.imports {
			old := strings.HasPrefix(i, "go.mongodb.org/mongo-driver/") && !strings.HasPrefix(i, "go.mongodb.org/mongo-driver/v2")
			engine := strings.HasPrefix(i, "github.com/256dpi/lungo") || strings.HasPrefix(i, "github.com/alicebob/miniredis")
			if old || engine {
				t.Errorf("%s imports %s; only internal/embedded may", f.path, i)
			}
		}
	}
}

func TestImports_testLibrariesAreNotInTheBinary(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "list", "-deps", "./cmd/lastmile")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("list what the binary is made of: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		for _, bad := range testOnly {
			if strings.HasPrefix(dep, bad) {
				t.Errorf("the binary has %s in it", dep)
			}
		}
	}
}

// Every package says what it is; those with a row in the table do so at length, in doc.go.
func TestPackages_areDocumented(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, f := range files(t) {
		if f.test() && !in(f.dir(), suites) || seen[f.dir()] {
			continue
		}
		seen[f.dir()] = true
		dir := filepath.Join(root(t), filepath.FromSlash(f.dir()))
		if pkg, err := build.ImportDir(dir, build.ImportComment); err != nil || pkg.Doc == "" {
			t.Errorf("%s has no package comment (%v)", f.dir(), err)
		}
		if _, ok := arrows[f.dir()]; !ok {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "doc.go")); err != nil {
			t.Errorf("%s has no doc.go", f.dir())
		}
	}
}

// files parses the imports of every Go file of the module.
func files(t *testing.T) []file {
	t.Helper()
	top := root(t)
	var out []file
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && p != top && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parse(top, p)
		out = append(out, f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 10 {
		t.Fatalf("only %d files found below %s", len(out), top)
	}
	return out
}

func parse(top, p string) (file, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
	if err != nil {
		return file{}, err
	}
	rel, err := filepath.Rel(top, p)
	if err != nil {
		return file{}, err
	}
	f := file{path: filepath.ToSlash(rel)}
	for _, i := range parsed.Imports {
		name, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return file{}, err
		}
		f.imports = append(f.imports, name)
	}
	return f, nil
}

// root is two folders up, since tests run in their package's own.
func root(t *testing.T) string {
	t.Helper()
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return top
}
