package registry_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lastmile-gateway/lastmile/internal/testkit"
)

// resp2 is a client as lastmile makes it.
func resp2(t testing.TB, s *testkit.Redis) redis.UniversalClient {
	t.Helper()
	rdb := s.Server().Pool(4, nil)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// resp3 is a client that asks for the newer protocol, in which a hash comes as a map.
func resp3(t testing.TB, s *testkit.Redis) redis.UniversalClient {
	t.Helper()
	return s.Client(t)
}
