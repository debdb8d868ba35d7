// Package socket is the last server on an event's way: it holds the WebSockets of some users, and the
// inbox through which their events come.
//
// # What it owns
//
// The public listener's GET /v1/ws and POST /v1/events; the sessions; one inbox (a stream that relays
// and other servers append to) and the lease that says this instance runs. It keeps no event: an
// entry stays in its inbox until somebody else answers for it.
//
// # The parts
//
//	inbox ──blocking read──▶ loop ──▶ tracker ──pairs──▶ hub ──▶ session (state machine) ──▶ writer ──▶ client
//	  ▲                                 │ ▲                        │  ▲                                   │
//	  └──────────── XACK + XDEL ────────┘ └────── settled ─────────┘  └──────── ack ◀──── reader ◀────────┘
//	                                    │
//	                                    └─ nobody here can ack it ─▶ hand-on: other inboxes, notifications
//
// life is one life of the instance: id, lease, inbox loop, tracker. A lost lease or inbox ends it as a
// whole, and the next one begins in place. conn is one WebSocket with two goroutines, a reader that only
// parses and a writer that is also the session's clock. The session itself is a machine without I/O
// (package internal/session, where its rules are) that whoever has something for it moves on under its
// lock; the scripts that it asks for run on a bounded pool, one of a session at a time. No lock is shared
// by deliveries to different users but those of a hub's shard.
//
// # States of a server
//
//	starting ──registered──▶ running ──ctx of Run ends──▶ draining ──▶ stopped
//	                          │  ▲
//	            lease or inbox│  │new instance, sessions moved
//	                     lost ▼  │
//	                         fencing ──superseded by another start──▶ stopped (ErrSuperseded)
//
// # When a pair is settled
//
// A pair (event, user, epoch, seq) is settled, and counts towards the XACK of its entry, when
//
//   - a session of the user here has acked it, under the welcome it came after; a client that does not
//     ack is taken at a completed write;
//   - it is older than the session's epoch, and the client has acked the welcome of that epoch;
//   - it was handed on: it is in another inbox, or in the notification stream, or dropped by rule
//     (ephemeral, expired, not to be notified);
//   - it is ephemeral, and was queued or dropped.
//
// Being sent is never enough: a write succeeds into a dead connection for megabytes.
//
// # Order and delivery
//
// A client gets the events of an epoch in the order of their seqs, each at least once, and is told by a
// welcome where its position is. That nothing is shown twice needs the client's set of ids too. Between
// users nothing is ordered. Events wait here no longer than Config.NotifyAfter.
//
// # At each failure
//
//	client gone, half-open or silent    its pairs stay unsettled; pong or ack timeout; handed on when no session is left
//	a frame makes its reader panic      logged; that connection is closed with 1011
//	client slow                         bounded queue; closed with 4000; it resumes from the log
//	clients hold the inbox' bound       the oldest holders are closed with 4001; a pause counts as progress
//	reply of a read lost                own pending entries are read again; others are found by XAUTOCLAIM
//	XACK failed, or its reply lost      tried again; the event is not sent again
//	entry undecodable, or panics 5 times  socket:dead
//	entry's body gone                   counted, acknowledged
//	Redis away                          sessions stay and wait; not ready after 4 s; goaway after 15 s; no socket is closed
//	Redis back, perhaps older           every redial refreshes all sessions before any further pair
//	lease claimed, inbox gone           a new instance in place; sessions are re-homed in-band; old tracker forgotten, old lease ended last
//	loop hangs                          no beat: the instance is claimed, and fences when it wakes
//	MongoDB away, or hanging            live events go on, and so do connects; gaps and resumes wait; publishing answers 503 or `unavailable`
//	killed                              clients resume elsewhere; a reaper moves the inbox
//
// # Draining
//
// When the context of Run ends: not ready, no new sessions, goaway with a spread, close 1012 over the
// window, queues written out, what is left handed on, inbox deleted when it is empty, lease given up
// last. What can't be finished within a few seconds, since Redis is away, is left for a reaper.
//
// # How to test against it
//
// New takes any Redis that redisconn.Parse accepts and an outbox.Store; both run in-process from package
// internal/embedded. Handler works under httptest. Routing needs no relay: append to the user's log by
// package registry, then to the instance's inbox. The session rule is tested without any of this: see
// package internal/session.
package socket
