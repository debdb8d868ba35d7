// Package registry knows where each user is connected, and keeps each user's
// log: all keys user:{<uid>}:… of Redis, and the scripts that write them.
//
// # What it owns
//
//	user:{<uid>}:at       hash   <instance>/<session> → <since ms> <device>, one field a session;
//	                             @epoch, @base, @acked, @made
//	user:{<uid>}:log      list   event ids of 16 bytes; the element at index i has seq @base + i
//	user:{<uid>}:revoked  string tokens issued before this ms are refused
//
// In key names the uid has %, { and } and control characters percent-encoded. A
// log begins with a sentinel, 16 zero bytes with seq 0; its first event has seq 1.
// It holds ids only: contents stay in the outbox.
//
// # States of a user
//
//	(no log) ──connect──▶ log of epoch A ──break──▶ log of epoch B, empty …
//	    ▲                        │
//	    └── replay window over ──┘   (10 min past the last refresh of a session)
//
// A log without @epoch and @base, or these without a log, is no log: appends
// answer seq 0, and the next connect makes it anew under a new epoch. A seq means
// nothing outside its epoch. A log past MaxLog elements is trimmed to TrimLog,
// and @base moves.
//
// # The scripts
//
// They are the only writers of the two keys besides the plain append and Leave.
// Each runs on one user's keys, so on one hash tag; each is in lua/ with a word on
// what it takes and answers. The plain append is no script because it is the one
// command that runs for every event of every user: MULTI, RPUSHX, HGETALL, EXEC
// cost Redis a third of a script. It must not be done twice; whatever may have been
// done before goes through the careful one.
//
// # Promises
//
//   - Whoever connected is found by every append that Redis does afterwards, and
//     the ids of the appends that it did before are in the answer.
//   - Seqs of one epoch are given once and contiguously as long as Redis loses
//     nothing; if it does, a view that contradicts the log is found: at connect by
//     the id at the client's position, at refresh and gap by the id at the
//     session's.
//   - A careful append of an id that the log holds adds nothing, however many do
//     it at once, and its seq belongs to the log as it was at that moment.
//   - Leave removes the fields that are named and no others; a re-home moves its
//     session in one step.
//   - The two keys of a user end in the same millisecond.
//
// Not promised: that an id is in the log once (two relays may append the same
// event plainly, or carefully after it was trimmed away); an order between users;
// that @acked is the newest: it is written by the sessions when they see fit.
//
// # At each failure
//
//   - A reply is lost: every script but the plain append may be run again. Break
//     changes nothing if its epoch is gone; connect, refresh and leave have the
//     same effect; acked only goes upwards.
//   - Redis restarts older: what it lost is not known here. The relay routes
//     again, carefully; sessions refresh and find a break; clients resume beyond
//     the log's end or at another id, and connect makes a new epoch, at most one in
//     BreakPause by that way, since two clients with views of two pasts would
//     otherwise break the log in turn.
//   - Redis restarts empty: no log; sessions re-home under a new epoch.
//   - Scripts are forgotten (a restart, SCRIPT FLUSH): a single call sends the text
//     again by itself; in a pipeline the error NOSCRIPT is trouble, and Load is due.
//   - A key has the wrong type: every call on that user is an error of that user
//     alone, in pipelines too, until the key is removed or expires.
//
// # How to test against it
//
// registrytest.Run is the conformance suite; it wants an empty Redis of 6.2 or
// newer, or miniredis. A restart from an older dump is a RESTORE of the two keys.
package registry
