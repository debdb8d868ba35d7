package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrBatch is wrapped by every error of DecodeBatch: the bytes are no batch, or one of a later version.
var ErrBatch = errors.New("bad batch")

// Least bytes of an item and of a pair outside text and bodies: what a count may claim is bounded by what is there.
const (
	minItem = 16 + 1 + 1 + 4
	minPair = 2
)

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
