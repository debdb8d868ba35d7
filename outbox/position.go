package outbox

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Timestamp is a cluster time: seconds since 1970 and a counter within the second. The zero value is none.
type Timestamp struct{ T, I uint32 }

// Compare orders by time: -1, 0 or 1.
func (t Timestamp) Compare(o Timestamp) int {
	return cmp.Or(cmp.Compare(t.T, o.T), cmp.Compare(t.I, o.I))
}

// IsZero says whether t is no time at all.
func (t Timestamp) IsZero() bool { return t == Timestamp{} }

// String is "<seconds>.<counter>".
func (t Timestamp) String() string { return fmt.Sprintf("%d.%d", t.T, t.I) }

// next is one tick later, carried over as MongoDB's own logical time does it.
func (t Timestamp) next() Timestamp {
	v := uint64(t.T)<<32 | uint64(t.I)
	v++
	return Timestamp{uint32(v >> 32), uint32(v)}
}

func (t Timestamp) bson() *bson.Timestamp { return &bson.Timestamp{T: t.T, I: t.I} }

// Position is a place in commit order: after the first Index events of the outbox that were committed
// at Timestamp, and after all that were committed earlier. All inserts of one transaction have one cluster time.
type Position struct {
	Timestamp
	Index uint32
}

// Compare orders by commit: -1, 0 or 1.
func (p Position) Compare(o Position) int {
	return cmp.Or(p.Timestamp.Compare(o.Timestamp), cmp.Compare(p.Index, o.Index))
}

// IsZero says whether p is no position at all.
func (p Position) IsZero() bool { return p == Position{} }

// String is "<seconds>.<counter>/<index>".
func (p Position) String() string { return fmt.Sprintf("%s/%d", p.Timestamp, p.Index) }

// Token is a place in a change stream as the server names it, opaque to everybody else: a BSON document.
// Empty: none.
type Token []byte

// String is the token's hexadecimal text, for logs; "" for none, "?" for what is no token of a MongoDB.
func (t Token) String() string {
	if len(t) == 0 {
		return ""
	}
	if s, ok := t.data(); ok {
		return s
	}
	return "?"
}

// MarshalJSON gives String, for status pages.
func (t Token) MarshalJSON() ([]byte, error) { return json.Marshal(t.String()) }

func (t Token) data() (string, bool) {
	v, err := bson.Raw(t).LookupErr("_data")
	if err != nil {
		return "", false
	}
	return v.StringValueOK()
}

// Time is the cluster time in the token, and whether it could be read: `_data` is a hexadecimal key
// string that begins with the type byte of a timestamp (82), its seconds and its counter, both big-endian.
func (t Token) Time() (Timestamp, bool) {
	s, ok := t.data()
	if !ok || len(s) < 18 {
		return Timestamp{}, false
	}
	b, err := hex.DecodeString(s[:18])
	if err != nil || b[0] != 0x82 {
		return Timestamp{}, false
	}
	be := func(b []byte) uint32 { return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]) }
	return Timestamp{be(b[1:5]), be(b[5:9])}, true
}
