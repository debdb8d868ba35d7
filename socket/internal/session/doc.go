// Package session is the rule by which one session of a user turns pairs from an inbox, and the user's
// log, into what its client is told. It is a state machine without I/O, clock or goroutine: every
// interleaving of pairs, acks, writes, scripts and failures is a sequence of calls.
//
// # States
//
//	           hello                       first welcome queued
//	(none) ──────────▶ connecting ───────────────────────────────▶ live ◀─┐
//	                      │  queue holds all pairs                   │    │ welcome queued
//	                      │                                          │    │ (same connection, n + 1)
//	                      │ ConnectTimeout,                          ├────┘
//	                      │ refused                                  │ break, re-home, fence: connect again
//	                      ▼                                          ▼
//	                   closing ◀── timeout, slow, kicked, drain ─────┘
//	                      │  acks still count
//	                      │ connection gone: End returns what is held
//	                      ▼
//	                    ended ── last @acked, leave ──▶ gone
//
// Under live the client is in one of two conditions. With the newest welcome acked it has a position,
// where a re-home resumes. While a welcome with recovered false is not acked it has none: nobody knows
// what it shows, so nothing is confirmed or covered, and a re-home tells it to reload again.
//
// # Scripts
//
// A session asks for one script at a time (Script, Done). Which one, if several are wanted:
//
//	break > connect > refresh > fetch of what is missed > write of @acked > look-up for the queue's head
//
// While one that may change where the session stands is wanted or runs, no pair is judged; pairs wait in
// their order. A failed script is asked for again after a pause, unless something more urgent came up.
//
// # What it knows
//
// Its epoch; sent, up to where all is in the send queue, written or skipped; acked, under the newest
// welcome; the ids of the last 512 seqs; which of these were skipped. Judge has the rule for a pair.
//
// # Promises
//
// A Ticket is settled only when the client has acked its pair under the welcome it was sent after, or
// was told by a later welcome to load everything committed before, and has acked that. End returns every
// ticket that is not settled. Events of an epoch are taken out of the machine in the order of their seqs,
// after the welcome of that epoch; no frame holds events from both sides of a welcome. A queue that a new
// welcome makes void is dropped whole; a dropped welcome's number is used again.
//
// Not promised: that an event is taken out once. After a re-home unacked ones come again, marked.
// Nor that a new connection notices every log that Redis has lost and that was filled again in another order.
// Its client names one seq and one id. Up to two partitions, each of which keeps its own order, the same id at
// the same seq has the same events before it; with three it need not. A session that lives on compares all
// ids that it knows.
//
// # At each failure
//
//	another id at a known seq, a gap that the log does not fill   break: a new epoch, told in-band
//	an id of the log without a document                           the same; in what was missed while away: recovered false only
//	another epoch at a pair                                       one look: older pair (covered), or this session is stale (re-home)
//	answer of a script from before a fence                        ignored
//	queue full                                                    Closed says 4000
//	no ack in time                                                Closed says 4001
//
// # How to test against it
//
// Drive a Machine by hand: the package's own tests have a log in memory that answers its scripts, one
// test a trace, and a property test that breaks that log in random ways.
package session
