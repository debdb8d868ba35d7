package protocol_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/protocol/internal/codes"
)

func TestCodes_generatedFilesAreCurrent(t *testing.T) {
	t.Parallel()
	files, err := codes.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		got, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(f.Path)))
		if err != nil || !bytes.Equal(got, f.Content) {
			t.Errorf("%s is not what the table says (%v): run go generate ./protocol", f.Path, err)
		}
	}
}

// A close reason over 123 bytes would reach the client as 1006 (cases C05).
func TestCase_C05_reasonsFitIntoACloseFrame(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for _, c := range codes.Closes {
		code := protocol.CloseCode(c.Code)
		if code.Reason() != c.Reason || c.Reason == "" || len(c.Reason) > 123 {
			t.Errorf("%d: reason %q (%d bytes)", c.Code, code.Reason(), len(code.Reason()))
		}
		if seen[c.Code] {
			t.Errorf("%d stands twice in the table", c.Code)
		}
		seen[c.Code] = true
		if code.Reconnect() != (c.Code < 4500) {
			t.Errorf("%d: reconnect %t contradicts its range", c.Code, code.Reconnect())
		}
	}
	for code, want := range map[protocol.CloseCode]bool{1006: true, 4321: true, 4499: true, 4500: false, 4777: false, 4999: false, protocol.CloseBye: true} {
		if code.Reconnect() != want {
			t.Errorf("%d: reconnect %t", code, code.Reconnect())
		}
	}
	if reason := protocol.CloseCode(4321).Reason(); reason != "" {
		t.Errorf("an unknown code has the reason %q", reason)
	}
}
