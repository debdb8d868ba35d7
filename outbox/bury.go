package outbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

const (
	maxReason   = 4 << 10
	maxDeadID   = 128
	maxDeadBody = maxDocument - 64<<10 // leaves room for what stands around the document
)

// Bury puts a document that is no event into outbox_dead, with the reason. A second time is no error: the id there
// is the document's own, whatever its type, or the hash of one that is too large for an index's key. What the server won't take as a part of
// a document (it may be nested too deep for that) is kept as bytes, and of one too large to be wrapped only the size.
func (s *Store) Bury(ctx context.Context, c Change, reason string) error {
	key := deadKey(c.Document)
	_, err := s.dead.InsertOne(ctx, deadDocument(key, s.cfg.Collection, c, reason, bson.Raw(c.Document)))
	var refused mongo.WriteException
	if errors.As(err, &refused) && len(refused.WriteErrors) > 0 && !mongo.IsDuplicateKeyError(err) {
		_, err = s.dead.InsertOne(ctx, deadDocument(key, s.cfg.Collection, c, reason, bson.Binary{Data: c.Document}))
	}
	if mongo.IsDuplicateKeyError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bury document %v: %w", key, err)
	}
	s.metrics.buried.Inc()
	return nil
}

func deadDocument(key any, collection string, c Change, reason string, body any) bson.D {
	doc := bson.D{
		{Key: "_id", Value: key},
		{Key: "reason", Value: clip(reason, maxReason)},
		{Key: "at", Value: time.Now()},
		{Key: "collection", Value: collection},
		{Key: "partition", Value: c.Partition},
		{Key: "size", Value: len(c.Document)},
	}
	if !c.Position.IsZero() {
		doc = append(doc, bson.E{Key: "clusterTime", Value: *c.Position.bson()})
	}
	if n := len(c.Document); n > 0 && n <= maxDeadBody {
		doc = append(doc, bson.E{Key: "document", Value: body})
	}
	return doc
}

// deadKey is an id's own value, or its hash.
func deadKey(doc bson.Raw) any {
	v, err := doc.LookupErr("_id")
	if err != nil {
		return hash(doc)
	}
	if len(v.Value) > maxDeadID || v.Type == bson.TypeArray || v.Type == bson.TypeRegex || v.Type == bson.TypeUndefined {
		return hash(append([]byte{byte(v.Type)}, v.Value...)) // the server takes these as no _id, or not in an index
	}
	return v
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// clip shortens to n bytes at most, between characters, and makes valid UTF-8 of what a document held.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
