package protocol

import "encoding/binary"

// The binary form of a batch, version 1. Integers are varints as of encoding/binary.
//
//	byte    version
//	uvarint items, uvarint pairs, uvarint length of text, uvarint length of bodies
//	bytes   text:   of each item its type, traceparent, and of each of its pairs user and epoch
//	bytes   bodies: of each item its body
//	of each item:
//	    16 bytes  id
//	    byte      flags (1 ephemeral, 2 skip notify, 4 expires)
//	    varint    time in ms, then the same of expiresAt if it expires
//	    uvarint   length of type, of traceparent, of body
//	    uvarint   pairs, and of each: uvarint length of user, uvarint seq, and if seq > 0 the length of epoch
//
// All text lies together so that a decoder makes one string of it and cuts that; bodies are not copied at all.
const batchVersion = 1

// batchOverhead is what a batch takes beyond its items, at most: version and four varints.
const batchOverhead = 1 + 4*binary.MaxVarintLen32

const (
	flagEphemeral = 1 << iota
	flagSkipNotify
	flagExpires
	flagsKnown = flagEphemeral | flagSkipNotify | flagExpires
)

// AppendTo appends the binary form of b, a pure function of its content.
func (b Batch) AppendTo(dst []byte) []byte {
	pairs, texts, bodies := 0, 0, 0
	for _, it := range b.Items {
		pairs += len(it.Pairs)
		texts += textSize(it)
		bodies += len(it.Event.Body)
	}
	dst = append(dst, batchVersion)
	for _, n := range [...]int{len(b.Items), pairs, texts, bodies} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	for _, it := range b.Items {
		dst = appendText(dst, it)
	}
	for _, it := range b.Items {
		dst = append(dst, it.Event.Body...)
	}
	for _, it := range b.Items {
		dst = appendItem(dst, it)
	}
	return dst
}

func textSize(it Item) int {
	n := len(it.Event.Type) + len(it.Event.Traceparent)
	for _, p := range it.Pairs {
		n += len(p.User) + len(epochOf(p))
	}
	return n
}

// epochOf leaves out the epoch where there is no seq that it could belong to.
func epochOf(p Pair) Epoch {
	if p.Seq <= 0 {
		return ""
	}
	return p.Epoch
}

func appendText(dst []byte, it Item) []byte {
	dst = append(dst, it.Event.Type...)
	dst = append(dst, it.Event.Traceparent...)
	for _, p := range it.Pairs {
		dst = append(dst, p.User...)
		dst = append(dst, epochOf(p)...)
	}
	return dst
}

func appendItem(dst []byte, it Item) []byte {
	v := it.Event
	dst = append(dst, v.ID[:]...)
	dst = append(dst, flagsOf(v))
	dst = binary.AppendVarint(dst, v.Time.UnixMilli())
	if !v.ExpiresAt.IsZero() {
		dst = binary.AppendVarint(dst, v.ExpiresAt.UnixMilli())
	}
	dst = binary.AppendUvarint(dst, uint64(len(v.Type)))
	dst = binary.AppendUvarint(dst, uint64(len(v.Traceparent)))
	dst = binary.AppendUvarint(dst, uint64(len(v.Body)))
	dst = binary.AppendUvarint(dst, uint64(len(it.Pairs)))
	for _, p := range it.Pairs {
		dst = binary.AppendUvarint(dst, uint64(len(p.User)))
		dst = binary.AppendUvarint(dst, uint64(max(p.Seq, 0)))
		if p.Seq > 0 {
			dst = binary.AppendUvarint(dst, uint64(len(p.Epoch)))
		}
	}
	return dst
}

func flagsOf(v *Envelope) byte {
	var flags byte
	if v.Ephemeral {
		flags |= flagEphemeral
	}
	if v.SkipNotify {
		flags |= flagSkipNotify
	}
	if !v.ExpiresAt.IsZero() {
		flags |= flagExpires
	}
	return flags
}

// itemSize is what it adds to the encoded batch.
func itemSize(it Item) int {
	v := it.Event
	n := textSize(it) + len(v.Body) + len(v.ID) + 1
	n += varintSize(v.Time.UnixMilli())
	if !v.ExpiresAt.IsZero() {
		n += varintSize(v.ExpiresAt.UnixMilli())
	}
	n += uvarintSize(len(v.Type)) + uvarintSize(len(v.Traceparent)) + uvarintSize(len(v.Body)) + uvarintSize(len(it.Pairs))
	for _, p := range it.Pairs {
		n += uvarintSize(len(p.User)) + uvarintSize(int(max(p.Seq, 0)))
		if p.Seq > 0 {
			n += uvarintSize(len(p.Epoch))
		}
	}
	return n
}

func uvarintSize(n int) int {
	var buf [binary.MaxVarintLen64]byte
	return binary.PutUvarint(buf[:], uint64(n))
}

func varintSize(n int64) int {
	var buf [binary.MaxVarintLen64]byte
	return binary.PutVarint(buf[:], n)
}
