package testkit

// What tests of this package look at from outside.
var (
	SharedRedis  = sharedRedis
	WithDatabase = withDatabase
	Lock         = lock
	ErrLocked    = errLocked
	ByContent    = byContent
	MongodKeeper = mongodKeeper
)
