// Package embedded runs a Redis and a MongoDB inside the process, each over TCP
// and in its real wire protocol, so that everything else talks to an address
// with the official drivers, here as in production. They are for trying and
// testing: all is in memory and gone at the end.
//
// # What it owns
//
// [Redis] is miniredis; what is added is the ageing of its TTLs. [Mongo] is a
// server of our own: package wire reads and writes messages, package store keeps
// the data (with lungo's matching of queries and updates), and this package has
// the commands, sessions, cursors and change streams. It presents itself as the
// one member of the replica set rs0, of wire version 21 (MongoDB 7.0) or another.
//
//	connection ── reads one message ahead ──▶ command ──▶ store (snapshot, transaction, oplog)
//	                                            ├─ session: none ─▶ open ─▶ committed | aborted
//	                                            └─ cursor: open ─▶ exhausted | killed | failed | idle for 10 min
//
// A server's life: New… opens the listener, Run serves until its context ends.
//
// # Promises
//
//   - What the recordings under testdata/mongod show is answered the same way:
//     fields, types, codes, labels, the structure of resume tokens. The list of
//     differences stands in scenarios_test.go.
//   - Transactions have snapshot isolation. Two that write one document conflict
//     at once (112); a single write waits for a transaction, at most until
//     maxTimeMS or TransactionLifetime. A retryable write sent twice is done once.
//   - A change stream gives every committed change once, in commit order, those of
//     a transaction together; its resume token also moves when nothing happens.
//   - What MongoDB 4.4 refuses to store is refused, also where later versions take
//     it: what works here works on every server.
//   - What isn't supported is an error that says so (238, 59 or the code that a
//     server gives), never ignored. A panic in a command is that command's
//     InternalError (1), logged.
//
// Not promised: durability; speed with large sorts without an index; the order
// of documents that a sort leaves open.
//
// # Limits
//
// MongoDB: no authentication, no collations, no update pipelines, no change
// streams of a whole database, no views or capped collections. Aggregation has
// $match, $sort, $skip, $limit, $project, $count and $group; change streams have
// $match and $project; expressions are those of the table in store/expr.go.
// The oplog keeps 5,000 changes: a stream that was away for more has lost its
// history, as on a server (136, 286).
//
// Redis: what miniredis lacks, above all CONFIG, ROLE, functions, CLIENT but for
// SETNAME and GETNAME, and INFO but for clients and stats; HELLO tells the
// version; of Lua's libraries bit, struct and cmsgpack. XPENDING's summary,
// XREADGROUP from an id and XAUTOCLAIM hide pending entries whose body was deleted,
// which a real server tells; XINFO GROUPS gives another lag. A key may go up to a step of 25 ms early (more with over 2,000 keys).
//
// # Failures
//
//   - Bytes that are no message close the connection they came on; no other is
//     touched. A message may have 48 MB; memory grows with what really arrives.
//   - A client that goes away ends the command that waits for it. Its transaction
//     stays until it is aborted by TransactionLifetime (60 s) or endSessions.
//   - A client that reads nothing is cut off after 30 s.
//   - The end of the context closes everything, also under a blocked XREADGROUP or
//     a getMore that waits; Run returns when its goroutines have ended.
//
// # How to test against it
//
// Start one for each test, with the default address (any free port), and cancel
// its context in the end. OplogSize and IdleWrite make lost history and idle
// tokens come soon. To compare with a real server, add a recording to
// testdata/mongod and a scenario to scenarios_test.go.
package embedded
