package redisconn

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// aboutOneKey are the beginnings of the replies that concern the key of one
// command and say nothing against Redis itself.
var aboutOneKey = []string{
	"WRONGTYPE ",
	"NOGROUP ",
	"BUSYGROUP ",
	// A stream that holds the greatest id there is takes no further entry.
	"ERR The stream has exhausted the last possible ID",
	"ERR The ID specified in XADD",
}

// IsTrouble says whether err means that Redis may have lost writes or can't be
// used: a connection that broke or could not be made, a timeout, a context that
// ended while a command was under way, and the replies LOADING, READONLY, OOM,
// MISCONF, CLUSTERDOWN, NOSCRIPT and every other that is not about one key.
// False for nil, for redis.Nil, and for an error about one key (WRONGTYPE,
// NOGROUP, …), also where a script met it.
func IsTrouble(err error) bool {
	if err == nil || errors.Is(err, redis.Nil) {
		return false
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return true
	}
	return !isAboutOneKey(reply.Error())
}

func isAboutOneKey(msg string) bool {
	// Redis 6.2 and miniredis wrap what a script's command answered:
	// "ERR Error running script (call to f_…): @user_script:3: WRONGTYPE Operation …"
	scripted := strings.HasPrefix(msg, "ERR Error ") || strings.HasPrefix(msg, "ERR user_script")
	for _, s := range aboutOneKey {
		if strings.HasPrefix(msg, s) || scripted && strings.Contains(msg, s) {
			return true
		}
	}
	return false
}
