package protocol

import (
	"encoding/json"
	"hash/fnv"
	"io"
	"math"
	"strings"
	"time"
)

// ProbeType is the type of the relay's own probes.
const ProbeType = reservedPrefix + "probe"

const reservedPrefix = "lastmile."

// ReservedType says whether events of type t are the system's own; they are refused from publishers.
func ReservedType(t string) bool { return strings.HasPrefix(t, reservedPrefix) }

// Event is one event of the outbox.
type Event struct {
	ID EventID  // zero before Prepare: a new one is made
	To []UserID // 1 to MaxRecipients

	Type    string // for example "chat.message"; required
	Source  string // who emitted it; "": "lastmile" is what the browser reads
	Subject string // what it is about, for example "room:42"; "": none

	Data json.RawMessage // a JSON object, at most MaxData bytes when compacted

	Key       string    // ordering key; "": Subject, else the first recipient
	Hash      *int32    // of the ordering key; nil or negative: computed from it
	Time      time.Time // of the insert; zero before Prepare: now
	ExpiresAt time.Time // past it the event is dropped; zero: never

	Ephemeral   bool   // no seq, no replay, no notification; dropped EphemeralLife after Time
	SkipNotify  bool   // no notification when the recipient is offline (`notify: false`)
	Traceparent string // W3C trace context, carried unchanged; "": none
}

// OrderingKey is what the event is ordered by: its key, else its subject, else its first recipient.
func (e *Event) OrderingKey() string {
	switch {
	case e.Key != "":
		return e.Key
	case e.Subject != "":
		return e.Subject
	case len(e.To) > 0:
		return string(e.To[0])
	}
	return ""
}

// PartitionHash is Hash where it is set and not negative, else FNV-1a 32 of OrderingKey, shifted right by one bit.
func (e *Event) PartitionHash() int32 {
	if e.Hash != nil && *e.Hash >= 0 {
		return *e.Hash
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, e.OrderingKey()) // a hash never fails
	return int32(h.Sum32() >> 1)
}

// Partition is the partition, of n, that a hash falls to. Fewer than two partitions are one, and a
// negative hash counts without its sign bit, so that no input leads outside 0 … n-1.
func Partition(hash int32, n int) int {
	if n < 2 {
		return 0
	}
	return int(hash&math.MaxInt32) % n
}

// Prepare completes a valid event for its insert: a new id and the present time where there is none,
// each recipient once (the first mention keeps its place), and the hash of the ordering key.
func (e *Event) Prepare() {
	if e.ID.IsZero() {
		e.ID = NewEventID()
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Time = e.Time.UTC().Truncate(time.Millisecond) // what MongoDB's dates hold
	if !e.ExpiresAt.IsZero() {
		e.ExpiresAt = e.ExpiresAt.UTC().Truncate(time.Millisecond)
	}
	e.To = distinct(e.To)
	hash := e.PartitionHash()
	e.Hash = &hash
}

// distinct makes a new list only where it must: the caller's own is never rearranged.
func distinct(users []UserID) []UserID {
	if len(users) < 2 {
		return users
	}
	seen := make(map[UserID]struct{}, len(users))
	for _, u := range users {
		seen[u] = struct{}{}
	}
	if len(seen) == len(users) {
		return users
	}
	out := make([]UserID, 0, len(seen))
	for _, u := range users {
		if _, ok := seen[u]; ok {
			delete(seen, u)
			out = append(out, u)
		}
	}
	return out
}
