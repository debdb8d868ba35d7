package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

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

// ErrBatch is wrapped by every error of DecodeBatch: the bytes are no batch, or one of a later version.
var ErrBatch = errors.New("bad batch")

const (
	flagEphemeral = 1 << iota
	flagSkipNotify
	flagExpires
	flagsKnown = flagEphemeral | flagSkipNotify | flagExpires
)

// Least bytes of an item and of a pair outside text and bodies: what a count may claim is bounded by what is there.
const (
	minItem = 16 + 1 + 1 + 4
	minPair = 2
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

// DecodeBatch reads what AppendTo wrote. Bodies alias b, which must not be changed afterwards; whatever
// the bytes are, the answer is a batch or an error wrapping ErrBatch, and the memory taken is bounded by their number.
func DecodeBatch(b []byte) (Batch, error) {
	d := decoder{rest: b}
	batch, err := d.batch()
	if err != nil {
		return Batch{}, fmt.Errorf("%w: %w", ErrBatch, err)
	}
	return batch, nil
}

var (
	errShort   = errors.New("it ends too early")
	errTrails  = errors.New("bytes after its end")
	errVersion = errors.New("unknown version")
	errCount   = errors.New("a count or length beyond what is there")
	errField   = errors.New("a field out of its limits")
)

// decoder cuts what is left of text, bodies and numbers from the front.
type decoder struct {
	rest   []byte
	text   string
	bodies []byte
	pairs  []Pair
	err    error // the first one; everything read after it is zero
}

func (d *decoder) batch() (Batch, error) {
	if v := d.byte(); d.err == nil && v != batchVersion {
		return Batch{}, fmt.Errorf("%w %d", errVersion, v)
	}
	items, pairs := d.length(), d.length()
	texts, bodies := d.length(), d.length()
	d.text = string(d.bytes(texts))
	d.bodies = d.bytes(bodies)
	if d.err == nil && (items > len(d.rest)/minItem || pairs > len(d.rest)/minPair) {
		d.err = errCount
	}
	if d.err != nil {
		return Batch{}, d.err
	}
	out, events := make([]Item, items), make([]Envelope, items)
	d.pairs = make([]Pair, pairs)
	for i := range out {
		out[i] = d.item(&events[i])
	}
	if d.err == nil && (len(d.rest) > 0 || len(d.text) > 0 || len(d.bodies) > 0 || len(d.pairs) > 0) {
		d.err = errTrails
	}
	return Batch{out}, d.err
}

func (d *decoder) item(v *Envelope) Item {
	copy(v.ID[:], d.bytes(len(v.ID)))
	flags := d.byte()
	v.Ephemeral, v.SkipNotify = flags&flagEphemeral != 0, flags&flagSkipNotify != 0
	v.Time = d.time()
	if flags&flagExpires != 0 {
		v.ExpiresAt = d.time()
	}
	types, trace, body, n := d.length(), d.length(), d.length(), d.length()
	v.Type, v.Traceparent = d.string(types), d.string(trace)
	v.Body = d.body(body)
	d.check(flags&^flagsKnown == 0 && !v.ID.IsZero() && types <= MaxType && trace <= MaxTraceparent)
	if n > len(d.pairs) {
		d.err, n = firstErr(d.err, errCount), 0
	}
	pairs := d.pairs[:n:n]
	d.pairs = d.pairs[n:]
	for i := range pairs {
		d.pair(&pairs[i])
	}
	return Item{v, pairs}
}

func (d *decoder) pair(p *Pair) {
	user, seq := d.length(), d.uvarint()
	p.User = UserID(d.string(user))
	if seq > 0 {
		p.Epoch = Epoch(d.string(d.length()))
	}
	p.Seq = Seq(min(seq, uint64(MaxSeq)))
	d.check(user >= 1 && user <= MaxUserID && seq <= uint64(MaxSeq) && (seq == 0 || len(p.Epoch) == epochLength))
}

func (d *decoder) check(ok bool) {
	if !ok {
		d.err = firstErr(d.err, errField)
	}
}

func firstErr(first, err error) error {
	if first != nil {
		return first
	}
	return err
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (d *decoder) bytes(n int) []byte {
	if d.err != nil || n > len(d.rest) {
		d.err = firstErr(d.err, errShort)
		return nil
	}
	out := d.rest[:n:n]
	d.rest = d.rest[n:]
	return out
}

func (d *decoder) string(n int) string {
	if d.err != nil || n > len(d.text) {
		d.err = firstErr(d.err, errCount)
		return ""
	}
	out := d.text[:n]
	d.text = d.text[n:]
	return out
}

// body cuts a body and looks at its ends: a frame is spliced of bodies, so each must at least be an object by its looks.
func (d *decoder) body(n int) []byte {
	if d.err != nil || n < 2 || n > len(d.bodies) || d.bodies[0] != '{' || d.bodies[n-1] != '}' {
		d.err = firstErr(d.err, errField)
		return nil
	}
	out := d.bodies[:n:n]
	d.bodies = d.bodies[n:]
	return out
}

func (d *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.rest)
	if d.err != nil || size <= 0 {
		d.err = firstErr(d.err, errShort)
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

// length reads a count or a length; more than a batch could ever hold is an error here already, so that sums can't overflow.
func (d *decoder) length() int {
	n := d.uvarint()
	if n > math.MaxInt32 {
		d.err = firstErr(d.err, errCount)
		return 0
	}
	return int(n)
}

func (d *decoder) time() time.Time {
	ms, size := binary.Varint(d.rest)
	if d.err != nil || size <= 0 {
		d.err = firstErr(d.err, errShort)
		return time.Time{}
	}
	d.rest = d.rest[size:]
	return time.UnixMilli(ms).UTC()
}
