package telemetry_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lastmile-gateway/lastmile/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, handler http.Handler, path string) (int, string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	body, err := io.ReadAll(recorder.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return recorder.Code, string(body)
}

func TestReadinessFollowsTheProcess(t *testing.T) {
	t.Parallel()
	var reason error
	handler := telemetry.Handler(telemetry.Config{Ready: func() error { return reason }})

	if code, _ := get(t, handler, "/readyz"); code != http.StatusOK {
		t.Fatalf("ready process: got %d", code)
	}
	reason = errors.New("redis: cut off")
	code, body := get(t, handler, "/readyz")
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "redis: cut off") {
		t.Fatalf("process that is not ready: got %d %q", code, body)
	}
	if code, _ := get(t, handler, "/livez"); code != http.StatusOK {
		t.Fatalf("a process that is not ready lives: got %d", code)
	}
}

func TestStatusAndMetricsAreServed(t *testing.T) {
	t.Parallel()
	handler := telemetry.Handler(telemetry.Config{
		Registry: telemetry.NewRegistry(),
		Status:   func() any { return map[string]int{"sessions": 3} },
	})
	if code, body := get(t, handler, "/statusz"); code != http.StatusOK || !strings.Contains(body, `"sessions": 3`) {
		t.Errorf("/statusz: got %d %q", code, body)
	}
	if code, body := get(t, handler, "/metrics"); code != http.StatusOK || !strings.Contains(body, "go_goroutines") {
		t.Errorf("/metrics: got %d, %d bytes", code, len(body))
	}
	if code, _ := get(t, handler, "/debug/pprof/cmdline"); code != http.StatusOK {
		t.Errorf("/debug/pprof/cmdline: got %d", code)
	}
	if code, _ := get(t, handler, "/nothing"); code != http.StatusNotFound {
		t.Errorf("unknown path: got %d", code)
	}
}
