package heartbeat

import (
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var sources embed.FS

// The scripts, each on the one key that holds the leases, so that they run on
// a Cluster too and see a state that nobody changes in between.
var (
	registerScript = script("register")
	rejoinScript   = script("rejoin")
	beatScript     = script("beat")
	claimScript    = script("claim")
	listScript     = script("list")
	runningScript  = script("running")
)

func script(name string) *redis.Script {
	return redis.NewScript(source("prelude") + source(name))
}

func source(name string) string {
	b, err := sources.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic("heartbeat: " + err.Error()) // the file is embedded: only a wrong name in the table above
	}
	return string(b)
}
