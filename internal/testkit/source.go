package testkit

import (
	"os"
	"os/exec"
	"strings"
	"sync"
)

// source is where a server comes from.
type source string

const (
	fromURL      source = "url"
	fromBinary   source = "binary"
	fromDocker   source = "docker"
	fromEmbedded source = "embedded"
)

const (
	redisURLName = "LASTMILE_TEST_REDIS_URL"
	mongoURLName = "LASTMILE_TEST_MONGO_URL"
)

var (
	findRedis = sync.OnceValue(func() source { return find(redisURLName, "redis-server") })
	findMongo = sync.OnceValue(func() source { return find(mongoURLName, "mongod") })
)

// find looks for the best source, in the order of the package's documentation.
func find(urlName, program string) source {
	if os.Getenv(urlName) != "" {
		return fromURL
	}
	if _, err := exec.LookPath(program); err == nil {
		return fromBinary
	}
	if dockerAnswers() {
		return fromDocker
	}
	return fromEmbedded
}

// version is what a program says with --version, in one line.
func version(program string) string {
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		return program
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return program + " (" + strings.TrimSpace(line) + ")"
}
