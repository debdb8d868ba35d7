package outbox

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// errNotBSON is for bytes that no server would send.
var errNotBSON = errors.New("is not valid BSON")

// noJSON names the types without a counterpart in JSON. Writing them some way or other would make a browser
// work with what the publisher never meant.
var noJSON = map[bsoncore.Type]string{
	bsoncore.TypeRegex: "a regular expression", bsoncore.TypeDBPointer: "a DBPointer",
	bsoncore.TypeJavaScript: "JavaScript", bsoncore.TypeCodeWithScope: "JavaScript",
	bsoncore.TypeTimestamp: "a timestamp (a date is what is meant for times)",
	bsoncore.TypeMinKey:    "a minKey", bsoncore.TypeMaxKey: "a maxKey",
}

// appendObject appends a BSON document as JSON. Publishers in other languages insert what their drivers make:
// dates become RFC 3339 in UTC with milliseconds, ObjectIDs 24 hexadecimal digits, UUIDs their usual form, other
// binaries base64, decimals numbers with all their digits.
func appendObject(dst, doc []byte, depth int) ([]byte, error) {
	return appendElements(dst, doc, depth, '{', '}')
}

func appendElements(dst, doc []byte, depth int, open, closing byte) ([]byte, error) {
	if depth > maxDepth+10 {
		return dst, fmt.Errorf("is nested deeper than %d levels", maxDepth+10)
	}
	dst = append(dst, open)
	first := true
	err := eachElement(doc, func(key string, v bsoncore.Value) error {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if open == '{' {
			if !utf8.ValidString(key) {
				return fmt.Errorf("has a name that %w", errNotUTF8)
			}
			dst = append(appendQuoted(dst, key), ':')
		}
		var err error
		dst, err = appendValue(dst, v, depth)
		return err
	})
	return append(dst, closing), err
}

// eachElement walks one level of a document, or of an array. Lengths are checked as it goes.
func eachElement(doc []byte, each func(key string, v bsoncore.Value) error) error {
	d, rest, ok := bsoncore.ReadDocument(doc)
	if !ok || len(rest) > 0 || len(d) < 5 || d[len(d)-1] != 0 {
		return errNotBSON
	}
	for body := []byte(d[4 : len(d)-1]); len(body) > 0; {
		t, key, after, ok := bsoncore.ReadHeader(body)
		if !ok {
			return errNotBSON
		}
		v, after, ok := bsoncore.ReadValue(after, t)
		if !ok {
			return errNotBSON
		}
		if err := each(key, v); err != nil {
			return err
		}
		body = after
	}
	return nil
}

func appendValue(dst []byte, v bsoncore.Value, depth int) ([]byte, error) {
	if what, ok := noJSON[v.Type]; ok {
		return dst, fmt.Errorf("holds %s, which has no form in JSON", what)
	}
	switch v.Type {
	case bsoncore.TypeEmbeddedDocument:
		return appendElements(dst, v.Data, depth+1, '{', '}')
	case bsoncore.TypeArray:
		return appendElements(dst, v.Data, depth+1, '[', ']')
	case bsoncore.TypeNull, bsoncore.TypeUndefined:
		return append(dst, "null"...), nil
	}
	if dst, ok, err := appendString(dst, v); ok || err != nil {
		return dst, err
	}
	return appendScalar(dst, v)
}

// appendString appends what is a string in JSON.
func appendString(dst []byte, v bsoncore.Value) (_ []byte, is bool, err error) {
	var s string
	var ok bool
	switch v.Type {
	case bsoncore.TypeString:
		s, ok = v.StringValueOK()
	case bsoncore.TypeSymbol:
		s, ok = v.SymbolOK()
	case bsoncore.TypeObjectID:
		id, has := v.ObjectIDOK()
		s, ok = hex.EncodeToString(id[:]), has
	case bsoncore.TypeDateTime:
		ms, has := v.DateTimeOK()
		t := time.UnixMilli(ms).UTC()
		if has && (t.Year() < 1 || t.Year() > 9999) {
			return dst, true, errors.New("holds a date outside the years 1 to 9999")
		}
		s, ok = t.Format(timeFormat), has
	case bsoncore.TypeBinary:
		subtype, b, has := v.BinaryOK()
		s, ok = formatBinary(subtype, b), has
	default:
		return dst, false, nil
	}
	switch {
	case !ok:
		return dst, true, errNotBSON
	case !utf8.ValidString(s):
		return dst, true, fmt.Errorf("has a string that %w", errNotUTF8)
	}
	return appendQuoted(dst, s), true, nil
}

// appendScalar appends what is a number or a boolean in JSON.
func appendScalar(dst []byte, v bsoncore.Value) ([]byte, error) {
	switch v.Type {
	case bsoncore.TypeBoolean:
		if b, ok := v.BooleanOK(); ok {
			return strconv.AppendBool(dst, b), nil
		}
	case bsoncore.TypeInt32:
		if n, ok := v.Int32OK(); ok {
			return strconv.AppendInt(dst, int64(n), 10), nil
		}
	case bsoncore.TypeInt64:
		if n, ok := v.Int64OK(); ok {
			return strconv.AppendInt(dst, n, 10), nil
		}
	case bsoncore.TypeDouble:
		if f, ok := v.DoubleOK(); ok {
			return appendFloat(dst, f)
		}
	case bsoncore.TypeDecimal128:
		if high, low, ok := v.Decimal128OK(); ok {
			return appendDecimal(dst, bson.NewDecimal128(high, low))
		}
	}
	return dst, errNotBSON
}

var errNotFinite = errors.New("holds a number that is not finite")

func appendFloat(dst []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return dst, errNotFinite
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) { // as ECMAScript writes numbers
		format = 'e'
	}
	return strconv.AppendFloat(dst, f, format, -1, 64), nil
}

// appendDecimal writes a decimal as a JSON number, as long as a browser can read it as one.
func appendDecimal(dst []byte, d bson.Decimal128) ([]byte, error) {
	if d.IsNaN() || d.IsInf() != 0 {
		return dst, errNotFinite
	}
	text := d.String()
	if _, err := strconv.ParseFloat(text, 64); err != nil {
		return dst, errors.New("holds a decimal that is out of a double's range")
	}
	return append(dst, text...), nil
}

func formatBinary(subtype byte, b []byte) string {
	if (subtype == bson.TypeBinaryUUID || subtype == bson.TypeBinaryUUIDOld) && len(b) == 16 {
		return formatUUID(b)
	}
	return base64.StdEncoding.EncodeToString(b)
}

func formatUUID(b []byte) string {
	if len(b) != 16 {
		return hex.EncodeToString(b)
	}
	s := hex.EncodeToString(b)
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

const timeFormat = "2006-01-02T15:04:05.000Z"

// appendQuoted appends a JSON string; only what JSON demands is escaped.
func appendQuoted(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		if c == '"' || c == '\\' {
			dst = append(dst, '\\', c)
			continue
		}
		dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
	}
	return append(append(dst, s[from:]...), '"')
}
