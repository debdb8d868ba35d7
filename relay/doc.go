// Package relay takes events from the outbox to their recipients: into the inbox of
// every socket server where a recipient is connected, or into the notification
// stream.
//
// # What it owns
//
// The outbox is divided into partitions (one by default), each owned by one relay
// at a time under a lease: relay:partition:{n} in Redis holds the lease, its fence,
// and the marker, up to which everything is routed. relay_checkpoints in MongoDB
// holds a copy of the marker and the slots, earlier places, for when Redis loses
// some or all of it.
//
// # States of a partition, in the relay that holds it
//
//	          ┌────────────── trouble of Redis, lease over ──────────────┐
//	          ▼                                                          │
//	standby ─▶ taking ──marker in Redis──────────────────────▶ running ──┤
//	 ▲        │  │                                            ▲  │      │
//	 │        │  └only in MongoDB▶ waiting ▶ notifying ───────┤  │      │
//	 │        └──neither────────▶ scanning ───────────────────┘  │      │
//	 │                              ▲   └── history lost ────────┘      │
//	 └── fenced, surplus, stopped ──┴───────────────────────────────────┘
//
// Every taking of a lease goes back, before it routes anything: by what Redis may
// have lost if it holds a marker (4 ticks; a tick is a slot written, one each 5 s
// of work), by what may have waited in inboxes if it is empty (61 ticks). What was
// committed before the taking is routed carefully: by a script that appends an
// event only if the user's log does not hold it.
//
// # Promises
//
// Every committed event is routed at least once: every pair of event and recipient
// is in an inbox, in the notification stream, or settled by rule (expired,
// ephemeral, notify: false, notifications disabled), before the marker passes it.
// A user's events get their seqs in commit order within a partition. A pipeline is
// sent only while the lease runs by the own clock. A tenure has one connection,
// dialled once: a second dial is refused before anything is sent over it, and what
// came back over one that broke is forgotten, since a seq does not outlive it.
//
// Not promised: that a pair is routed once. Whoever reads inboxes and
// notifications tells repetitions by epoch and seq, and by the event's id.
//
// # Crash points
//
// The relay, killed between any two of these steps, or Redis, losing what it was
// told last; the next owner repairs it in each case, from the marker:
//
//	after                      lost                 doubled                      repaired by
//	-------------------------  -------------------  ---------------------------  --------------------------------------
//	lease taken in Redis       nothing              nothing                      the next taking; its fence is higher
//	fence taken in MongoDB     nothing              nothing                      the same; fences may be skipped
//	slot of the rewind         nothing              nothing                      one more tick than work: goes back no less
//	marker of the rewind       nothing              nothing                      the next taking goes back from there
//	range notified again,      nothing              notifications (same id)      done again whole: no marker before its end
//	  in the middle
//	scan, in the middle        nothing              pairs with the same seq      scanned again from the same place
//	slot and copy behind it    nothing              nothing                      the next taking: scanned, or on from there
//	stage 1, some legs         nothing              nothing: no inbox has them   careful append finds the seq that was given
//	stage 1, Redis older       seqs given           –                            forgotten with the connection; new seqs
//	stage 2, some instances    nothing              pairs with the same seq      session: seq at or below sent
//	stage 2, a nil reply       nothing              nothing                      not in notifications yet, so no marker: again
//	notifications              nothing              notifications (same id)      notifier: one mark a pair
//	stage 2, Redis older       inbox entries        –                            rewind by 4 ticks, same seq or a new one
//	marker, with stage 1 of    nothing              nothing                      –
//	  the next batch
//	copy to MongoDB            nothing              nothing                      counts only if Redis is empty: 61 ticks back
//	document buried            nothing              nothing                      the second burial is the same document
//	zombie wakes up            nothing              a pair with an earlier seq   its marker is fenced off; client and session
//	                                                                             know the id
//
// # The reaper
//
// Every relay runs one. It judges the looks at the leases of socket servers that the
// relay makes anyway, and empties the inboxes of the dead:
//
//	lease runs ──ends──▶ seen ended ──the same in a look a beat later──▶ due ─▶ lock ─▶ claim
//	  ▲                    │   └─ most have ended at once, or we were       ▲             │
//	  └──── it beats ──────┘      away for half a lease: a lease later ─────┤     pending entries ◀─┐
//	                              at 0 (superseded, given up, reaper died) ─┘     unread entries    │
//	                                                                              seal ─not empty───┘
//	                                                            history, description, lease, lock: gone
//
// The claim and all that follows go over one connection, dialled once like that of a
// tenure: who lost the claim has lost the connection too. An entry is settled when
// each of its pairs is in another inbox, in the notification stream, or settled by
// rule. Killed after any step, a reaper leaves a lease at 0, which the next look of
// any relay finds:
//
//	after                      lost                 doubled                      repaired by
//	-------------------------  -------------------  ---------------------------  --------------------------------------
//	lock                       nothing              nothing                      it ends after a lease
//	claim                      nothing              nothing                      at 0, its instance can't come back
//	entries taken              nothing              nothing                      pending, whoever holds them
//	pairs moved, some or all   nothing              pairs with the same seq      session: seq at or below sent
//	pairs notified             nothing              notifications (same id)      notifier: one mark a pair
//	entry put aside as bad     nothing              dead letter                  for people to see
//	entries settled            nothing              nothing                      –
//	inbox sealed               nothing              nothing                      whoever appends is told that it is gone
//	history written            nothing              an entry of history          for people to see
//	description gone           nothing              nothing                      the lease is still there
//	Redis older, at any step   what was moved last  what was settled last        the inbox and its lease are back too, or the rewind
//	frozen past its lock       nothing              what was on its way          it finds its lock over, and stops
//
// An inbox without a lease, which nobody would ever look at, gets one at 0: the relay
// that holds partition 0 looks through all keys whenever it took that anew, a minute
// later, and then hourly.
//
// # Failures
//
//   - Redis breaks, fails over, is frozen, restarts older or empty: the tenure ends,
//     the lease is taken again, with backoff, for ever. Attempts are not counted: no
//     event is parked because Redis was away.
//   - MongoDB breaks: the stream is opened again at the marker, with backoff, for
//     ever; the lease is kept meanwhile. History lost: the scan.
//   - An error about one key (a log, an inbox of the wrong type): the pairs concerned
//     go to notifications, everything else goes on.
//   - A document that is no event: outbox_dead, with the reason.
//   - A reap breaks: it is tried again, with backoff, for ever; others are not held up.
//     What stands in an inbox and is no entry goes to socket:dead; an id without a body
//     is counted and settled.
//   - A frozen relay: its lease ends by its own clock and by Redis'; another takes the
//     partition; on waking it finds itself fenced and stands by.
//
// # Testing against it
//
// [NewOver] takes the outbox as an interface, to put faults before a real one. Paces
// and leases are in [Config]; shorten them together. [Relay.Ready] says when a relay
// that was started has its partitions.
package relay
