package protocol

import "time"

// Limits of one event. Lengths are in bytes.
const (
	MaxRecipients   = 100_000
	MaxUserID       = 128
	MaxType         = 128
	MaxSource       = 256
	MaxSubject      = 256
	MaxKey          = 256
	MaxTraceparent  = 128
	MaxData         = 256 << 10 // of the compacted JSON
	MaxDataDepth    = 64        // of nested objects and arrays; MongoDB takes 100 in a whole document
	MaxInstanceName = 64
	MaxSeq          = Seq(1)<<53 - 1 // the greatest integer that a browser keeps exactly
)

// EphemeralLife is how long after its time an ephemeral event is still worth delivering.
const EphemeralLife = 10 * time.Second

// Limits of a request to publish.
const (
	MaxPublish     = 1000     // events in one request
	MaxPublishBody = 16 << 20 // bytes of one request
)

// Limits of a batch on its way from relay to socket server.
const (
	MaxBatchEvents = 64
	MaxBatchBytes  = 64 << 10 // encoded; an event that is bigger travels alone
	MaxBatchPairs  = 1000     // of one event
)

// Limits of frames. A server's frame is at most MaxServerFrame bytes, or holds one event.
const (
	MaxServerFrame = 64 << 10
	MaxClientFrame = 320 << 10 // default of what a client may send: one event's data and what is around it
	MaxDevice      = 32        // bytes of a hello's device
	MaxRef         = 64        // bytes of a publish frame's ref
)

// Limits of a user's log: past MaxLog elements it is trimmed to TrimLog. A session knows the ids of its last KnownIDs seqs.
const (
	MaxLog   = 512
	TrimLog  = 256
	KnownIDs = 512
)
