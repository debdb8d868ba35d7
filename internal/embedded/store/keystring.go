package store

import (
	"encoding/binary"
	"math"
	"math/bits"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The first byte of a key: the order of the types, as in a server's KeyString
// (src/mongo/db/storage/key_string.cpp), whose integers, strings, ids, dates,
// timestamps and documents are encoded the same way here. Fractions and decimals
// have an order-preserving form of their own, since nothing outside reads them.
const (
	ctMinKey          = 10
	ctNull            = 20
	ctNaN             = 30
	ctNegLarge        = 31
	ctNeg8            = 32
	ctNeg1            = 39
	ctNegSmall        = 40
	ctZero            = 41
	ctPosSmall        = 42
	ctPos1            = 43
	ctPosLarge        = 51
	ctNumeric         = 30 // canonical, inside documents
	ctString          = 60
	ctObject          = 70
	ctArray           = 80
	ctBinary          = 90
	ctObjectID        = 100
	ctFalse           = 110
	ctTrue            = 111
	ctBool            = 110
	ctDate            = 120
	ctTimestamp       = 130
	ctRegex           = 140
	ctDBPointer       = 150
	ctCode            = 160
	ctCodeWScope      = 170
	ctMaxKey          = 240
	keyEnd       byte = 4
)

// AppendKey appends v in a form whose bytes compare as MongoDB compares values,
// and of which none is the beginning of another.
func AppendKey(dst []byte, v bson.RawValue) []byte {
	switch v.Type {
	case bson.TypeInt32:
		return appendInt(dst, int64(v.Int32()))
	case bson.TypeInt64:
		return appendInt(dst, v.Int64())
	case bson.TypeDouble:
		return appendDouble(dst, v.Double())
	case bson.TypeDecimal128:
		return appendDecimal(dst, v.Decimal128())
	case bson.TypeString:
		return appendCString(append(dst, ctString), v.StringValue())
	case bson.TypeSymbol:
		return appendCString(append(dst, ctString), v.Symbol())
	case bson.TypeEmbeddedDocument:
		return appendObject(append(dst, ctObject), bson.Raw(v.Value))
	case bson.TypeArray:
		return appendArray(append(dst, ctArray), bson.Raw(v.Value))
	case bson.TypeBinary:
		return appendBinary(dst, v)
	case bson.TypeObjectID:
		return append(append(dst, ctObjectID), v.Value...)
	case bson.TypeBoolean:
		if v.Boolean() {
			return append(dst, ctTrue)
		}
		return append(dst, ctFalse)
	case bson.TypeDateTime:
		return binary.BigEndian.AppendUint64(append(dst, ctDate), uint64(v.DateTime())^(1<<63))
	case bson.TypeTimestamp:
		t, i := v.Timestamp()
		return Timestamp{t, i}.appendKey(dst)
	case bson.TypeMinKey:
		return append(dst, ctMinKey)
	case bson.TypeMaxKey:
		return append(dst, ctMaxKey)
	case bson.TypeRegex:
		pattern, options := v.Regex()
		return appendCString(appendCString(append(dst, ctRegex), pattern), options)
	case bson.TypeDBPointer, bson.TypeJavaScript, bson.TypeCodeWithScope:
		return appendCString(append(dst, canonical(v.Type)), string(v.Value))
	default: // null, undefined, missing
		return append(dst, ctNull)
	}
}

func canonical(t bson.Type) byte {
	switch t {
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128:
		return ctNumeric
	case bson.TypeString, bson.TypeSymbol:
		return ctString
	case bson.TypeEmbeddedDocument:
		return ctObject
	case bson.TypeArray:
		return ctArray
	case bson.TypeBinary:
		return ctBinary
	case bson.TypeObjectID:
		return ctObjectID
	case bson.TypeBoolean:
		return ctBool
	case bson.TypeDateTime:
		return ctDate
	case bson.TypeTimestamp:
		return ctTimestamp
	case bson.TypeMinKey:
		return ctMinKey
	case bson.TypeMaxKey:
		return ctMaxKey
	case bson.TypeRegex:
		return ctRegex
	case bson.TypeDBPointer:
		return ctDBPointer
	case bson.TypeJavaScript:
		return ctCode
	case bson.TypeCodeWithScope:
		return ctCodeWScope
	default:
		return ctNull
	}
}

func appendInt(dst []byte, n int64) []byte {
	switch {
	case n == 0:
		return append(dst, ctZero)
	case n == math.MinInt64:
		return appendLarge(dst, float64(n))
	case n < 0:
		return appendMagnitude(dst, uint64(-n)<<1, true)
	default:
		return appendMagnitude(dst, uint64(n)<<1, false)
	}
}

// appendMagnitude appends an integer part that is shifted left by one bit; the
// low bit says that a fraction follows.
func appendMagnitude(dst []byte, m uint64, negative bool) []byte {
	n := (bits.Len64(m) + 7) / 8
	kind, flip := byte(ctPos1+n-1), byte(0)
	if negative {
		kind, flip = byte(ctNeg1-n+1), 0xff
	}
	dst = append(dst, kind)
	for shift := 8 * (n - 1); shift >= 0; shift -= 8 {
		dst = append(dst, byte(m>>shift)^flip)
	}
	return dst
}

func appendDouble(dst []byte, f float64) []byte {
	abs := math.Abs(f)
	switch {
	case math.IsNaN(f):
		return append(dst, ctNaN)
	case f == 0:
		return append(dst, ctZero)
	case abs >= 1<<63:
		return appendLarge(dst, f)
	case abs < 1:
		return appendBits(append(dst, pick(f < 0, ctNegSmall, ctPosSmall)), math.Float64bits(abs), f < 0)
	}
	whole, fraction := math.Modf(abs)
	if fraction == 0 {
		return appendMagnitude(dst, uint64(whole)<<1, f < 0)
	}
	dst = appendMagnitude(dst, uint64(whole)<<1|1, f < 0)
	return appendBits(dst, math.Float64bits(fraction), f < 0)
}

func appendLarge(dst []byte, f float64) []byte {
	return appendBits(append(dst, pick(f < 0, ctNegLarge, ctPosLarge)), math.Float64bits(math.Abs(f)), f < 0)
}

func pick(cond bool, a, b byte) byte {
	if cond {
		return a
	}
	return b
}

func appendBits(dst []byte, u uint64, invert bool) []byte {
	if invert {
		u = ^u
	}
	return binary.BigEndian.AppendUint64(dst, u)
}

// appendDecimal orders a decimal by its nearest integer or double: two decimals
// that differ beyond 17 digits are one key.
func appendDecimal(dst []byte, d bson.Decimal128) []byte {
	if d.IsNaN() {
		return append(dst, ctNaN)
	}
	if inf := d.IsInf(); inf != 0 {
		return appendLarge(dst, math.Inf(inf))
	}
	coefficient, exponent, err := d.BigInt()
	if err != nil {
		return append(dst, ctNaN)
	}
	if exponent == 0 && coefficient.IsInt64() {
		return appendInt(dst, coefficient.Int64())
	}
	f, _ := coefficient.Float64()
	return appendDouble(dst, f*math.Pow10(exponent))
}

// appendCString ends a string by 00 and writes a 00 in it as 00 ff.
func appendCString(dst []byte, s string) []byte {
	for i := range len(s) {
		dst = append(dst, s[i])
		if s[i] == 0 {
			dst = append(dst, 0xff)
		}
	}
	return append(dst, 0)
}

func appendObject(dst []byte, doc bson.Raw) []byte {
	elements, err := doc.Elements()
	if err != nil {
		return append(dst, 0)
	}
	for _, e := range elements {
		v := e.Value()
		dst = append(dst, canonical(v.Type))
		dst = appendCString(dst, e.Key())
		dst = AppendKey(dst, v)
	}
	return append(dst, 0)
}

func appendArray(dst []byte, array bson.Raw) []byte {
	values, err := array.Values()
	if err != nil {
		return append(dst, 0)
	}
	for _, v := range values {
		dst = AppendKey(dst, v)
	}
	return append(dst, 0)
}

func appendBinary(dst []byte, v bson.RawValue) []byte {
	subtype, data := v.Binary()
	dst = append(dst, ctBinary)
	if len(data) < 0xff {
		dst = append(dst, byte(len(data)))
	} else {
		dst = binary.BigEndian.AppendUint32(append(dst, 0xff), uint32(len(data)))
	}
	return append(append(dst, subtype), data...)
}
