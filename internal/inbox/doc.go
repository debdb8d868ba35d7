// Package inbox holds the streams between relay, socket servers and notifier, and
// the decision where a pair goes that can't be delivered where it is.
//
// It owns the inboxes socket:inbox:<instance> (group socket, one consumer: the
// instance itself), the notification stream socket:notification:all (group
// notifier), the marks socket:notified:{<event>.<user>} by which a pair is notified
// once, and the dead letters socket:dead and socket:notification:dead.
//
// An entry's way:
//
//	Append ──▶ unread ──Read──▶ pending ──Settle──▶ (none)
//	              │                │  ▲
//	              │                │  └ Pending, TakeLost + Fetch: what a lost reply or connection left
//	              └──── the reaper: TakeOver and TakeUnread, HandOn.Do, Settle, then Seal, until it is gone
//
// A stream's way: Make (group at the first entry, so nothing added before is
// missed) … Seal (deleted once empty). Behind a Seal every append answers
// ErrGone, and no append makes an inbox: an id that was reaped stays gone.
//
// A notification's way is the same, with several consumers: what one of them has not
// renewed for a while (RenewNotifications) another takes (ClaimNotifications). A
// renewal takes nothing back. A mark goes from nothing to PENDING under one entry, and
// from there to SENT or DEAD; only the holder of that entry moves it on.
//
// # Promises
//
//   - Entries are read in the order of their appends. What was read stays pending
//     until it is settled; settling is both XACK and XDEL, or neither, so neither
//     the stream nor its pending list grows by what is done.
//   - Ids are given by Redis, always. An entry with an id far in the future stops
//     nobody: ids behind it just go on from there.
//   - A read waits no longer than its block, and no block is for ever.
//   - HandOn.Do answers nil only when each pair is in another inbox, in the
//     notification stream, or settled by rule. Then, and only then, the entry may
//     be settled. Done twice it doubles, which the session and the notifier drop.
//
// Not promised: that an entry is read once (see Pending, TakeLost), or that ids of
// two streams differ.
//
// # Failures
//
//	fault                              | what happens
//	-----------------------------------+-------------------------------------------
//	the reply of a Read is lost        | the entries are pending: Pending after a new connection, or TakeLost
//	the reply of a Settle is lost      | settled again, harmless
//	a crash before Settle              | read again, by the owner or a reaper
//	a body is gone under a pending id  | Raw.Fields is nil: count it and settle it
//	an entry can't be decoded          | ErrBadEntry: ToDead, then settle it
//	stream or group missing, wrong type| ErrGone: the owner fences, others count the instance as not there
//	a dead instance's group is missing | ErrGone to its reaper: Regroup, unless Seal finds the stream gone
//	a context ends during Read         | nothing, until block is over or the connection closed: CloseOnDone
//	any trouble during HandOn.Do       | an error; nothing may be settled; do it again
//	Redis loses an append after Settle | lost here: in Cluster the caller waits before it settles
//
// # Testing against it
//
// The package needs nothing but a Redis. Not all answers are alike: an embedded
// server hides pending ids whose body is gone, a real one lists them.
package inbox
