// Package testkit gives tests what they run against: a Redis and a MongoDB, a proxy that breaks
// connections, processes under control, free addresses. Only tests import it.
//
// # Servers
//
// A test never names a server; it asks for one. Each kind is looked for in this order, and what was
// taken is printed once:
//
//  1. a URL: LASTMILE_TEST_REDIS_URL, LASTMILE_TEST_MONGO_URL
//  2. a local binary: redis-server (a process of its own for every test), mongod (one for all, as a
//     replica set of one member)
//  3. Docker, if a daemon answers (one container for all)
//  4. the embedded server, in this process
//
// EachRedis and EachMongo run a test against the embedded server and the real one that was found;
// FirstRedis and FirstMongo take the real one, else the embedded; RealRedis skips where there is none.
// Every test has its server to itself, or a database of its own in it, so tests may run in parallel.
//
// # What is missing
//
// A real server, or a browser, that is missing skips a test (Require) unless LASTMILE_TEST_REQUIRE, a
// list such as "redis,chromium", names it: then the test fails. Where LASTMILE_TEST_REPORT names a file,
// what was taken and what was skipped is appended to it, for the summary at the end of `make test`.
//
// # Promises
//
// What a test started ends with it, also when it fails; a process ends with the test binary, also when
// that is killed (on Linux). An address from FreeAddr is given to no other test of any process until its
// test ends, and the kernel gives it to nobody who asks for any port. Faults are real: a cut is a reset,
// a freeze is SIGSTOP, and nothing pretends.
//
// Not promised: that an address of FreeAddr is free of programs that are no tests but take a fixed port.
//
// # Failures
//
// Every fault of the kit itself (a server that doesn't start, a binary that doesn't build) fails the test
// with the output of what failed. The kit never falls back silently to a worse server than it announced.
package testkit
