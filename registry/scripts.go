package registry

import (
	"context"
	"embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var sources embed.FS

var (
	connectScript = script("common", "connect")
	appendScript  = script("append")
	trimScript    = script("common", "trim")
	gapScript     = script("common", "gap")
	holdsScript   = script("common", "holds")
	breakScript   = script("common", "break")
	refreshScript = script("common", "refresh")
	ackedScript   = script("common", "acked")
	revokeScript  = script("revoke")
)

func script(names ...string) *redis.Script {
	var text strings.Builder
	for _, name := range names {
		text.WriteString(source(name))
	}
	return redis.NewScript(text.String())
}

func source(name string) string {
	b, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // a name above without its file
	}
	return string(b)
}

// Load makes Redis know the scripts that are queued onto pipelines. Call it on a
// new connection before queueing any: in a pipeline there is no second try with
// the whole text, and a Redis that restarted has forgotten them.
func (r *Registry) Load(ctx context.Context, rdb redis.UniversalClient) error {
	for _, s := range []*redis.Script{appendScript, trimScript} {
		if err := s.Load(ctx, rdb).Err(); err != nil {
			return fmt.Errorf("load scripts: %w", err)
		}
	}
	return nil
}
