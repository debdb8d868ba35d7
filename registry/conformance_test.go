package registry_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
	"github.com/lastmile-gateway/lastmile/registry/registrytest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		registrytest.Run(t, func(t *testing.T) redis.UniversalClient { return resp2(t, s) })
	})
}

func TestConformance_RESP3(t *testing.T) {
	t.Parallel()
	testkit.EachRedis(t, func(t *testing.T, s *testkit.Redis) {
		registrytest.Run(t, func(t *testing.T) redis.UniversalClient { return resp3(t, s) })
	})
}
