package registry_test

import (
	"testing"

	"github.com/lastmile-gateway/lastmile/internal/redisconn"
	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/protocol"
	"github.com/lastmile-gateway/lastmile/registry"
)

func field() registry.Field {
	return registry.Field{Instance: protocol.NewInstanceID("A"), Session: protocol.NewSessionID()}
}

// Redis restarted and has forgotten the scripts: single calls send them again;
// what is queued says so, and works after Load.
func TestScriptsForgotten(t *testing.T) {
	t.Parallel()
	s := testkit.OwnRedis(t)
	rdb := resp2(t, s)
	r := registry.New(rdb, registry.Config{})
	user := protocol.UserID("ann")
	if err := r.Load(t.Context(), rdb); err != nil {
		t.Fatal(err)
	}
	queued := func() error {
		p := rdb.Pipeline()
		cmd := r.QueueAppendCarefully(t.Context(), p, user, protocol.NewEventID())
		_, _ = p.Exec(t.Context())
		_, err := cmd.Result()
		return err
	}
	if err := queued(); err != nil {
		t.Fatal(err)
	}
	s.Restart(t)
	if _, err := r.Connect(t.Context(), user, registry.ConnectRequest{At: registry.Location{Field: field()}}); err != nil {
		t.Errorf("single call: %v", err)
	}
	if err := queued(); !redisconn.IsTrouble(err) {
		t.Errorf("queued call: %v, want trouble", err)
	}
	if err := r.Load(t.Context(), rdb); err != nil {
		t.Fatal(err)
	}
	if err := queued(); err != nil {
		t.Errorf("queued call after Load: %v", err)
	}
}
