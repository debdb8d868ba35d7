// Package outbox is the outbox in MongoDB: it publishes events into it, in the application's own transaction, and
// reads them out of it again, by change stream, by scan and by id. It owns three collections of one database:
//
//	outbox              one document an event (schema/event.schema.json); written by applications, deleted by Retain
//	outbox_dead         documents that are no events, with the reason; kept 30 days
//	relay_checkpoints   one document a partition: fence, marker, ring of slots
//
// # Publishing
//
// Publish with a session in its context makes the event part of the caller's transaction: it exists if and when
// that commits. The id is the event: publishing it twice is publishing it once, and a duplicate does not abort the
// transaction it is in. One that is committed behind the transaction's snapshot is a write conflict (112,
// TransientTransactionError), never a duplicate key: the transaction is repeated, and sees it then. Publish needs no
// Prepare: the first insert makes the collection, inside a transaction too (MongoDB 4.4 with its own
// featureCompatibilityVersion; two that do it at once conflict).
//
// # A stream's states
//
//	Watch ──▶ open ──Next──▶ open            changes, or none within AwaitTime; Place moves either way
//	           │  ▲
//	   trouble │  │ opened again at Place, after a pause with full jitter
//	           ▼  │
//	         broken ──Next──▶ broken         nothing; Trouble says why
//	           │
//	           │ the oplog has passed Place, or Place is beyond the server's time, or of another collection
//	           ▼
//	          lost                           ErrHistoryLost, from now on: Scan, then Watch anew
//
// A drop or rename of the collection leaves the stream open, for what comes under its name. A document whose change
// is over the server's 16 MB (its `_id` is a giant) would stop the stream for good: it is filtered out until the
// stream is past it, and answered as a fault.
//
// # Order and delivery
//
// A Stream answers each insert at least once, in commit order; what it answered twice has the same id. A Position
// counts inserts within one cluster time, so that the members of a transaction have an order too. A Scan answers in
// the order of the `time` fields, which publishers set before they commit: within the length of a transaction it
// is not commit order. Together with a stream that was opened before the scan began, nothing committed is missed
// if the scan begins earlier than any transaction under way did.
//
// Not promised: the order of events in the outbox across a Scan; that Retain ever deletes a document without a
// proper `time`; that a document deleted before its change was read is seen (don't delete, Retain does).
//
// # What happens at each failure
//
//	server unreachable, election, cursor killed   the driver resumes, else the stream is opened again at Place, for ever
//	the oplog has passed the place (286, 136)     ErrHistoryLost
//	a token of another server's future            ErrHistoryLost: compared with the operationTime of every reply
//	another collection under the name             ErrOtherCollection, at Watch with Collection set, and at every reopening
//	a collection renamed onto the outbox          ErrOtherCollection: what is in it never passed the stream
//	a document that is no event                   Change with a Fault; Bury keeps it with the reason
//	the commit's reply is lost                    the driver repeats the write under its transaction number: once
//	a process that was fenced goes on writing     ErrFenced: every write of a checkpoint is conditional on the fence
//	a query of Fetch fails                        all who wait for it get the error; the next call asks again
//
// # Testing against it
//
// Package outboxtest is the conformance suite, the same for a real MongoDB and for the embedded server; its Proxy
// stands between the driver and a server and changes what passes, command by command. A Store needs a server:
// there is no double, since what matters here is what servers do.
package outbox
