// Package heartbeat keeps the leases of instances: who of the socket servers, or
// of the relays and notifiers, is alive.
//
// It owns the sorted sets socket:instances and relay:instances (instance id →
// end of the lease, ms of Redis' own TIME) and the hashes socket:instance:<id>
// (descriptions, for people to look at). Every change is one script on the one
// key, so that a beat and a claim never both succeed.
//
//	        Register, Rejoin                 Remove
//	(none) ─────────────────▶ running ───────────────────▶ (none)
//	                           │   ▲ Beat                     ▲
//	              time, no beat│   │ (onResume: refresh all)  │
//	                           ▼   │                          │
//	                          ended ─────── Claim ──▶ 0 ──────┘ Remove, by the reaper
//	                           │                      ▲
//	                           └── Register, Rejoin, End (of a running one too)
//
// A value of 0 is for ever: its instance is lost at its next beat, and whoever
// lists it may reap it. An instance id is of one life: a start and a fence each
// make a new one, so what an earlier life left can't be mistaken for this one's.
//
// # Promises
//
//   - A claim and a beat at the same moment: if the claim comes first the beat
//     answers ErrLost, else the claim fails.
//   - A lease that runs is never claimed. A pause of Redis ends leases and moves
//     nobody: who beats before he is claimed goes on, and is told to refresh.
//   - Of two processes of one name the later start stays. The other one ends
//     with ErrSuperseded; neither flaps.
//   - No clock but Redis' decides. It is read only inside the scripts.
//
// Not promised: that an instance whose lease ended has stopped working. It finds
// out at its next beat, so what it still does under the old id must be harmless.
//
// # Failures
//
//	fault                             | what happens
//	----------------------------------+------------------------------------------------
//	a beat's reply is lost            | the value is greater than the last confirmed one: goes on
//	Redis frozen or away              | the keeper keeps trying; LastBeat tells since when
//	   … longer than a lease          | ended, unclaimed: goes on with onResume; claimed: ErrLost
//	Redis went back                   | the value is lower, or missing: ErrLost
//	Redis empty                       | missing: ErrLost
//	the process was frozen            | as Redis frozen: ErrLost once a reaper has claimed the lease
//	failover to a clock behind        | the lease is shorter or longer by the difference, once
//	the reaper dies after its claim   | the lease stands at 0: the next reaper claims it again
//	Register's reply is lost          | the next Register supersedes the leftover
//	Rejoin's reply is lost            | the same id is tried again
//
// # Testing against it
//
// Leases needs nothing but a Redis. To end a lease without waiting, write an
// earlier score into the sorted set; to let Redis go back,
// write back what ZRANGE gave before.
package heartbeat
