package redisconn_test

import (
	"strings"
	"testing"

	"github.com/lastmile-gateway/lastmile/internal/redisconn"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://localhost":                     "redis://localhost:6379",
		"redis://":                              "redis://localhost:6379",
		"redis://10.0.0.1:7000/3":               "redis://10.0.0.1:7000/3",
		"redis://10.0.0.1:7000?db=3":            "redis://10.0.0.1:7000/3",
		"redis://ann:secret@redis.internal":     "redis://ann@redis.internal:6379",
		"redis://:secret@redis.internal/0":      "redis://redis.internal:6379",
		"rediss://ann:s%40cret@redis.internal":  "rediss://ann@redis.internal:6379",
		"rediss://redis?skip_verify=true":       "rediss://redis:6379",
		"redis://[::1]:7000":                    "redis://[::1]:7000",
		"redis://ann:%2F%40%3A@redis.internal/": "redis://ann@redis.internal:6379",
	} {
		s, err := redisconn.Parse(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if got := s.String(); got != want {
			t.Errorf("%s: prints as %s, want %s", url, got, want)
		}
	}
}

func TestParse_Refused(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"":                                   "empty",
		"  ":                                 "empty",
		"localhost:6379":                     "supported: redis://",
		"secret:secret@host":                 "supported: redis://",
		"//secret@host":                      "no scheme",
		"http://:secret@host":                "supported: redis://",
		"redis+cluster://:secret@a,b":        "redis+cluster:// is not supported",
		"redis+sentinel://:secret@a,b/m":     "redis+sentinel:// is not supported",
		"redis://:se/cr#secret@host":         "percent-encoded",
		"redis://:secret%zz@host":            "percent-encoded",
		"redis://host:secret":                "percent-encoded",
		"redis://:secret@host/db":            "database",
		"redis://:secret@host?max_retries=3": `"max_retries"`,
		"redis://:secret@host?pool_size=3":   `"pool_size"`,
		"redis://:secret@host?colour=red":    "colour",
	} {
		_, err := redisconn.Parse(url)
		if err == nil {
			t.Errorf("%s: accepted", url)
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want something about %s", url, err, want)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error gives the password away: %v", url, err)
		}
	}
}
