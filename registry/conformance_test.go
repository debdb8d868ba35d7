package registry_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/registry/registrytest"
)

func TestConformance(t *testing.T) {
	eachRedis(t, func(t *testing.T, newRedis func(t *testing.T) redis.UniversalClient) {
		registrytest.Run(t, newRedis)
	})
}
