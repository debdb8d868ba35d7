package outbox

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// Change is one document that was inserted into the outbox.
type Change struct {
	// Position is the place right behind it; zero out of a scan, which doesn't know.
	Position Position
	// Token goes on right behind it; empty out of a scan.
	Token Token

	// Event is what the document holds; nil: it is none, and Fault says why.
	Event *protocol.Event
	Fault error

	// Document is the document as BSON, for Bury. It shares memory with its batch.
	Document []byte
	// Partition is where it falls: by the event's hash, computed where there is none.
	Partition int
}

// change decodes a document and finds its partition.
func (s *Store) change(doc bson.Raw, partitions int) Change {
	e, fault := decode(doc)
	c := Change{Document: doc, Partition: partitionOf(e, fault == nil, partitions)}
	if fault != nil {
		c.Fault = fault
		s.metrics.changes.WithLabelValues("fault").Inc()
		return c
	}
	c.Event = e
	s.metrics.changes.WithLabelValues("event").Inc()
	return c
}

// mine says whether a change falls to the partition; with one partition all do.
func (c *Change) mine(partition, partitions int) bool {
	return partitions <= 1 || c.Partition == partition
}

// streamEvent is what is read of a change stream's own document. Raw values alias it.
type streamEvent struct {
	token     bson.Raw
	operation string
	time      Timestamp
	document  bson.Raw // fullDocument, of inserts
	key       bson.Raw // documentKey
	to        string   // of a rename: the collection's new name
}

func readStreamEvent(raw bson.Raw) streamEvent {
	var e streamEvent
	e.token, _ = raw.Lookup("_id").DocumentOK()
	e.operation, _ = raw.Lookup("operationType").StringValueOK()
	e.time.T, e.time.I, _ = raw.Lookup("clusterTime").TimestampOK()
	e.document, _ = raw.Lookup("fullDocument").DocumentOK()
	e.key, _ = raw.Lookup("documentKey").DocumentOK()
	if e.operation == "rename" {
		e.to, _ = raw.Lookup("to", "coll").StringValueOK()
	}
	return e
}
