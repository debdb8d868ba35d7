package relay

import "github.com/redis/go-redis/v9"

// OnConn lets a test put hooks into every connection that a tenure opens.
func (r *Relay) OnConn(each func(redis.UniversalClient)) {
	dial := r.dial
	r.dial = func(onDial func()) redis.UniversalClient {
		conn := dial(onDial)
		each(conn)
		return conn
	}
}

// Exported for tests: the formats of markers, and the keys.
var (
	FormatPosition = formatPosition
	ParsePosition  = parsePosition
	PartitionKey   = partitionKey
)
