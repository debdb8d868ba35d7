// Command chaos is the proof of the promise: it runs the real processes, breaks them by a schedule that a
// seed determines, and judges what every simulated browser saw.
//
//	go run ./e2e/chaos -seed 1 -faults 60 -for 3m
//
// # What runs
//
//	publishers ──POST, retried by id──▶ socket ×3 ──▶ MongoDB ──▶ relay ×2 ──▶ Redis (AOF) ──▶ socket ×3
//	                                       ▲                                       │              │
//	 browsers ◀──── networks (proxies) ────┘                                  notifier ×2         ▼
//	                                                                               │           browsers
//	                                                                               ▼
//	                                                                           webhook here
//
// Redis is a redis-server of its own with an append-only file. MongoDB is that of `lastmile embedded`, or a
// real one by -mongo-url. Each process reaches either through a proxy of its own, and each browser belongs
// to a network, which has a proxy to each socket server. The browsers are written from the protocol's
// description, share no code with the server or its client, and keep the client's rules.
//
// # States of a run
//
//	start ──all ready──▶ faults ──schedule done──▶ settle ──nothing open, or the limit──▶ judge ──▶ table
//
// While it settles nothing is broken any more, everybody who is to come back is connected, and publishers
// finish what they began.
//
// # What is judged
//
// The ledger knows every event from before its first POST, and its place in commit order from a change
// stream of its own that no fault touches. A browser's page load is a read of the outbox at that moment, so
// "everything committed before the reload is covered" is checked by what really was committed. judge.go has
// the rules, each exception beside the sentence of the promise that makes it. Any violation ends the program
// with status 1; 2 means that the run itself failed and nothing was judged.
//
// # Promises
//
// The schedule (what, when, how long, which target) depends on the seed alone; what the processes make of it
// does not. Where a target is still down when its turn comes, the fault waits. Everything that was started
// ends with the program, by process id.
//
// # Failures
//
// A process that ends unasked is started again and shown in the table; one that panicked, or in which the
// race detector found something, is a violation. Output of all processes goes to -logs when something was
// violated.
package main
