package web_test

import (
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"

	"github.com/lastmile-gateway/lastmile/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, h http.Handler, method, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A module that isn't embedded would be a 404 in the browser only.
func TestClientServesEveryModuleItImports(t *testing.T) {
	t.Parallel()
	imports := regexp.MustCompile(`(?m)^(?:import|export) .*from "\./(.+)";$`)
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		r := get(t, web.Client(), "GET", "/"+name)
		if r.StatusCode != 200 || r.Header.Get("Content-Type") != "text/javascript; charset=utf-8" {
			t.Fatalf("GET %s: %d %s", name, r.StatusCode, r.Header.Get("Content-Type"))
		}
		for _, match := range imports.FindAllStringSubmatch(body(t, r), -1) {
			visit(match[1])
		}
	}
	visit("index.js")
	if len(seen) < 8 {
		t.Fatalf("only %d modules found: %v", len(seen), seen)
	}
}

func TestClientLeavesTestsOut(t *testing.T) {
	t.Parallel()
	err := fs.WalkDir(web.ClientFS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if strings.Contains(name, "test") {
			t.Errorf("%s is in the binary", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFilesRevalidateByETag(t *testing.T) {
	t.Parallel()
	first := get(t, web.Client(), "GET", "/index.js")
	etag := first.Header.Get("ETag")
	if etag == "" || first.Header.Get("Cache-Control") != "no-cache" {
		t.Fatalf("headers %v", first.Header)
	}
	again := get(t, web.Client(), "GET", "/index.js", "If-None-Match", etag)
	if again.StatusCode != http.StatusNotModified || body(t, again) != "" {
		t.Fatalf("same ETag: %d", again.StatusCode)
	}
	other := get(t, web.Client(), "GET", "/index.js", "If-None-Match", `"other"`)
	if other.StatusCode != 200 {
		t.Fatalf("other ETag: %d", other.StatusCode)
	}
	if e := get(t, web.Client(), "GET", "/client.js").Header.Get("ETag"); e == etag {
		t.Fatal("two files share an ETag")
	}
}

func TestFilesRefuse(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/missing.js", "/", "/../doc.go", "/client.js/", "//index.js"} {
		if r := get(t, web.Client(), "GET", path); r.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s: %d, want 404", path, r.StatusCode)
		}
	}
	if r := get(t, web.Client(), "POST", "/index.js"); r.StatusCode != 405 || r.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", r.StatusCode, r.Header)
	}
	if r := get(t, web.Client(), "HEAD", "/index.js"); r.StatusCode != 200 || body(t, r) != "" {
		t.Errorf("HEAD: %d", r.StatusCode)
	}
}

func TestFilesServeAFolderByItsIndex(t *testing.T) {
	t.Parallel()
	h, err := web.Files(fstest.MapFS{
		"index.html":     {Data: []byte("<p>root")},
		"ops/index.html": {Data: []byte("<p>ops")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/": "<p>root", "/ops/": "<p>ops"} {
		if got := body(t, get(t, h, "GET", path)); got != want {
			t.Errorf("GET %s: %q, want %q", path, got, want)
		}
	}
	if _, err := web.Files(fstest.MapFS{"a.unknown": {}}); err == nil || !strings.Contains(err.Error(), "a.unknown") {
		t.Errorf("a file without a known type: %v", err)
	}
}

func TestSecurePolicy(t *testing.T) {
	t.Parallel()
	r := get(t, web.Secure(web.Client(), "ws://127.0.0.1:8081", "wss://b.example"), "GET", "/index.js")
	policy := r.Header.Get("Content-Security-Policy")
	for _, want := range []string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'",
		"connect-src 'self' ws://127.0.0.1:8081 wss://b.example",
	} {
		if !strings.Contains(policy, want) {
			t.Errorf("policy lacks %q: %s", want, policy)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("policy allows inline code: %s", policy)
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
