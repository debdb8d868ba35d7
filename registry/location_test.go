package registry_test

import (
	"errors"
	"testing"

	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

func TestField(t *testing.T) {
	t.Parallel()
	f := registry.Field{Instance: protocol.NewInstanceID("host:8080"), Session: protocol.NewSessionID()}
	got, err := registry.ParseField(f.String())
	if err != nil || got != f {
		t.Errorf("%q is read as %v, %v", f, got, err)
	}
	for _, s := range []string{"", "/", "a/", "/b", "ab", "@epoch", "@a/b"} {
		if f, err := registry.ParseField(s); !errors.Is(err, registry.ErrField) {
			t.Errorf("%q is read as %v, %v", s, f, err)
		}
	}
	if s := (registry.Field{}).String(); s != "" {
		t.Errorf("the zero field is %q", s)
	}
}
