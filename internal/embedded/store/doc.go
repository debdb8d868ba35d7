// Package store is the database behind the embedded MongoDB: collections with
// indexes, an oplog, snapshots and transactions, all in memory. lungo's mongokit
// matches queries and applies updates; storage and isolation are done here,
// since lungo copies a whole collection for every document that it writes.
//
// # What it owns
//
//	Engine ── current: state (immutable) ── collection ── docs, indexes (copy-on-write trees)
//	   │                                        └─ record (one version of a document, raw BSON)
//	   ├─ oplog (bounded; entries numbered; readers wait on Batch.Changed)
//	   └─ locks: unique key → transaction
//
// A Txn begins with a snapshot, writes into copies of the trees, and keeps its
// changes in order. Commit puts the copies in place if nobody else wrote there,
// else does its changes again on the latest version; then it appends to the
// oplog, under one time, and publishes.
//
//	Begin ──▶ open ──Commit──▶ ended        open ──Abort──▶ ended
//
// # Promises
//
//   - Snapshot isolation: a reader sees one state, and neither waits nor is waited for.
//   - Of two transactions that write one key the second gets a write conflict, as
//     it does if the key was written after its snapshot. Single writes wait.
//   - The oplog has the order of the commits; a transaction's entries are never
//     torn apart, neither by a reader nor by what is dropped.
//   - What was stored is never changed: documents that are handed out are shared.
//
// Not promised: durability (all is gone with the process), and serialisability
// (write skew is possible, as on a server).
//
// # Failures
//
//   - An [Error] goes to the client as it is. Any other error is a fault of this package.
//   - A single write that fails half-way keeps what it did before (as insertMany
//     does on a server); a transaction has to be aborted by who holds it.
//   - An operator that isn't there is an error, never ignored.
//
// To test against it, make a NewEngine: it starts nothing and needs no end.
package store
