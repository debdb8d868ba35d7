package testkit

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	redisImage = "redis:7.2-alpine"
	mongoImage = "mongo:7.0"
)

// dockerAnswers asks the daemon, and no longer than two seconds: testcontainers itself would look in many places for a minute.
var dockerAnswers = sync.OnceValue(func() bool {
	if _, err := exec.LookPath("docker"); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}").Run() == nil
})

func dockerRedis(t testing.TB) string {
	t.Helper()
	return fromContainer(t, redisContainer)
}

func dockerMongo(t testing.TB) string {
	t.Helper()
	return fromContainer(t, mongoContainer)
}

func fromContainer(t testing.TB, start func() (string, error)) string {
	t.Helper()
	url, err := start()
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// The containers are shared by all tests of this process; testcontainers' reaper removes them after it.
var (
	redisContainer = sync.OnceValues(func() (string, error) {
		c, err := container(redisImage, "6379/tcp", wait.ForListeningPort("6379/tcp"), "redis-server", "--save", "", "--appendonly", "no")
		if err != nil {
			return "", err
		}
		return endpoint(c, "redis")
	})
	mongoContainer = sync.OnceValues(func() (string, error) {
		c, err := container(mongoImage, "27017/tcp", wait.ForListeningPort("27017/tcp"), "mongod", "--bind_ip_all", "--replSet", "rs0")
		if err != nil {
			return "", err
		}
		return mongoEndpoint(c)
	})
)

func container(image, port string, ready wait.Strategy, command ...string) (testcontainers.Container, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute) // the image may have to come first
	defer cancel()
	c, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{
		ContainerRequest: testcontainers.ContainerRequest{Image: image, ExposedPorts: []string{port}, Cmd: command, WaitingFor: ready},
		Started:          true,
	})
	if err != nil {
		return nil, fmt.Errorf("start container of %s: %w", image, err)
	}
	return c, nil
}

func endpoint(c testcontainers.Container, scheme string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	url, err := c.Endpoint(ctx, scheme)
	if err != nil {
		return "", fmt.Errorf("find the container's port: %w", err)
	}
	return url, nil
}

// mongoEndpoint makes the container a replica set. Its member's name holds only inside, so clients connect directly.
func mongoEndpoint(c testcontainers.Container) (string, error) {
	url, err := endpoint(c, "mongodb")
	if err != nil {
		return "", err
	}
	if err := initiate(url+"/?directConnection=true", "127.0.0.1:27017"); err != nil {
		return "", fmt.Errorf("make the container's mongod a replica set: %w", err)
	}
	return url + "/?directConnection=true", nil
}
