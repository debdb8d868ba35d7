// Package redisconn says where Redis is and opens connections to it that fit
// what lastmile promises.
//
// # What it owns
//
// A [Server]: an address, credentials and TLS, parsed from a URL, and the one
// set of go-redis options that every part of lastmile uses. Nothing else in
// the module builds a client by hand.
//
// # Why not plain go-redis clients
//
// go-redis is made to hide faults; lastmile has to see them:
//
//   - Retries are off. A command whose reply was lost may have been done; an
//     append that is sent again is an event with two sequence numbers.
//   - A replaced connection is reported ([Server.Pool], [Server.Conn]: onDial).
//     Redis may have restarted older in between without any command failing,
//     since the pool drops a dead idle connection and dials anew silently.
//   - Idle and lifetime limits are off, and pools are of fixed size without the
//     second pool that go-redis keeps for pipelines: so a replaced connection
//     means a broken one, and a client of one connection really has one.
//   - A dial that fails is reported at once by the command that needed it.
//     go-redis would try five times, then refuse all commands for a second and
//     probe from a goroutine that outlives Close.
//   - RESP2: all that lastmile reads has the same shape in both protocols, and
//     push messages, which RESP3 looks for before each reply, are not used.
//
// # States of a connection
//
//	(none) ──dial──▶ open ──error, timeout, peer closed──▶ closed ──dial, onDial──▶ open …
//
// # Promises
//
// onDial is called before the first command goes out on a connection that
// replaces a lost one: for a client of one connection, at every dial after the
// first. It is never called for a dial that failed, for a connection that is only
// dialled late, nor twice for one connection. It is called on the goroutine of
// whoever needed the connection: it must not block, nor use the client.
//
// Not promised: that a break is reported at the moment it happens. A connection
// on which nothing is sent tells nothing; who needs to know early sends a ping.
//
// # At each failure
//
//   - Redis is away: every command answers the dial's error at once, or after
//     the dial timeout (2 s).
//   - Redis is frozen or cut off: the command answers a timeout (3 s, or the
//     context's deadline if that is sooner; blocking reads 10 s past their own
//     block time if the context has no deadline), and its connection is closed.
//   - A context is cancelled while a command runs: the command goes on until its
//     reply, its timeout or the context's deadline; go-redis interrupts no read.
//
// [IsTrouble] tells such faults from an answer about one key.
//
// # How to test against it
//
// Parse takes the address of any server that speaks the protocol: miniredis, a
// redis-server of the test's own, or a proxy in front of either that cuts,
// delays and swallows.
package redisconn
