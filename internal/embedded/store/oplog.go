package store

import (
	"sort"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Operations of the oplog. OpCreate, OpIndex and OpNoop make no event; they
// only move the place that a stream has reached.
const (
	OpInsert  = "insert"
	OpUpdate  = "update"
	OpReplace = "replace"
	OpDelete  = "delete"
	OpDrop    = "drop"
	OpRename  = "rename"
	OpCreate  = "create"
	OpIndex   = "createIndexes"
	OpNoop    = "noop"
)

// Entry is one change. Its place is (Time, Index): the operations of one
// transaction have one time and are counted by Index.
type Entry struct {
	Time  Timestamp
	Index int
	Op    string
	NS    Namespace
	UUID  uuid.UUID
	To    Namespace // of a rename
	ID    bson.RawValue
	Doc   bson.Raw // inserted or put in place
	Desc  bson.Raw // {updatedFields, removedFields} of an update
	// LSID and TxnNumber name the transaction, if it was one.
	LSID      bson.Raw
	TxnNumber int64

	at   time.Time
	size int
}

// Token is the resume token of the entry's event.
func (e *Entry) Token() Token {
	rest := append([]byte{ctBinary, 16, bson.TypeBinaryUUID}, e.UUID[:]...)
	if e.ID.Type != 0 {
		key, _ := bson.Marshal(bson.D{{Key: "_id", Value: e.ID}})
		rest = appendObject(append(rest, ctObject), key)
	}
	return Token{Time: e.Time, Event: true, Index: e.Index, rest: rest}
}

// OplogLimits say how much history is kept: the oldest entries go when there are
// more than Size entries or Bytes bytes, but none younger than MinAge.
type OplogLimits struct {
	Size   int
	Bytes  int
	MinAge time.Duration
}

type oplog struct {
	limits OplogLimits

	mu      sync.Mutex
	entries []*Entry
	first   uint64 // the number of entries[0]
	bytes   int
	changed chan struct{} // closed at every append
}

func newOplog(limits OplogLimits) *oplog {
	return &oplog{limits: limits, changed: make(chan struct{})}
}

func (o *oplog) append(entries []*Entry, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range entries {
		e.at, e.size = now, 200+len(e.Doc)+len(e.Desc)
		o.bytes += e.size
	}
	o.entries = append(o.entries, entries...)
	o.trimLocked(now)
	close(o.changed)
	o.changed = make(chan struct{})
}

// trimLocked drops whole transactions, so that no token falls between two
// operations of one.
func (o *oplog) trimLocked(now time.Time) {
	n, bytes := 0, o.bytes
	for n < len(o.entries)-1 {
		e := o.entries[n]
		if len(o.entries)-n <= o.limits.Size && bytes <= o.limits.Bytes {
			break
		}
		if now.Sub(e.at) < o.limits.MinAge {
			break
		}
		bytes -= e.size
		n++
	}
	for n > 0 && n < len(o.entries) && o.entries[n].Time == o.entries[n-1].Time {
		n--
		bytes += o.entries[n].size
	}
	if n == 0 {
		return
	}
	// The head is only cut off here; append moves the rest to a new array, and
	// frees this one, when it is full.
	clear(o.entries[:n])
	o.entries, o.first, o.bytes = o.entries[n:], o.first+uint64(n), bytes
}

// Batch is what a reader finds in the oplog.
type Batch struct {
	Entries []*Entry
	// First is the number of the first entry that is still kept, Next that of
	// the one to read next.
	First, Next uint64
	// Changed is closed at the next write.
	Changed <-chan struct{}
}

func (o *oplog) read(from uint64, limit int) Batch {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := Batch{First: o.first, Next: from, Changed: o.changed}
	if from < o.first {
		return b
	}
	rest := o.entries[min(int(from-o.first), len(o.entries)):]
	rest = rest[:min(limit, len(rest))]
	b.Entries = append(b.Entries, rest...)
	b.Next = from + uint64(len(rest))
	return b
}

// seek finds the number of the first entry at t or later, and the oldest time
// that is kept if anything was dropped.
func (o *oplog) seek(t Timestamp) (number uint64, oldest Timestamp) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := sort.Search(len(o.entries), func(i int) bool { return o.entries[i].Time.Compare(t) >= 0 })
	if o.first > 0 && len(o.entries) > 0 {
		oldest = o.entries[0].Time
	}
	return o.first + uint64(i), oldest
}
