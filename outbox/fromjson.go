package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// maxDepth is how deep objects and arrays may be nested. MongoDB takes 100 levels in a whole document; protocol allows less.
const maxDepth = 90

// appendJSONObject appends a JSON object as a BSON document. This is not Extended JSON: {"$date": …} stays an
// object with a member of that name. Integers become int32 or int64, other numbers doubles, and what a double
// would round becomes a decimal.
func appendJSONObject(dst []byte, data []byte) ([]byte, error) {
	if err := checkUTF8(data); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("is not a JSON object")
	}
	dst, err := appendMembers(dst, d, 1)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("has something behind the JSON object")
	}
	return dst, nil
}

// appendMembers reads on from an opening brace to the closing one.
func appendMembers(dst []byte, d *json.Decoder, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("is nested deeper than %d levels", maxDepth)
	}
	start, dst := bsoncore.AppendDocumentStart(dst)
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("is not valid JSON: %w", err)
		}
		name, ok := t.(string)
		if !ok || strings.IndexByte(name, 0) >= 0 {
			return nil, errors.New("has a name that MongoDB can't store")
		}
		if dst, err = appendJSONValue(dst, name, d, depth); err != nil {
			return nil, err
		}
	}
	return closeJSON(dst, start, d)
}

func appendItems(dst []byte, d *json.Decoder, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("is nested deeper than %d levels", maxDepth)
	}
	start, dst := bsoncore.AppendArrayStart(dst)
	var err error
	for i := 0; d.More(); i++ {
		if dst, err = appendJSONValue(dst, strconv.Itoa(i), d, depth); err != nil {
			return nil, err
		}
	}
	return closeJSON(dst, start, d)
}

func closeJSON(dst []byte, start int32, d *json.Decoder) ([]byte, error) {
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("is not valid JSON: %w", err)
	}
	return bsoncore.AppendDocumentEnd(dst, start)
}

func appendJSONValue(dst []byte, name string, d *json.Decoder, depth int) ([]byte, error) {
	t, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("is not valid JSON: %w", err)
	}
	switch v := t.(type) {
	case json.Delim:
		if v == '{' {
			return appendMembers(bsoncore.AppendHeader(dst, bsoncore.TypeEmbeddedDocument, name), d, depth+1)
		}
		return appendItems(bsoncore.AppendHeader(dst, bsoncore.TypeArray, name), d, depth+1)
	case string:
		return bsoncore.AppendStringElement(dst, name, v), nil
	case json.Number:
		return appendNumber(dst, name, v.String())
	case bool:
		return bsoncore.AppendBooleanElement(dst, name, v), nil
	}
	return bsoncore.AppendNullElement(dst, name), nil
}

func appendNumber(dst []byte, name, text string) ([]byte, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && text != "-0" {
		if n >= math.MinInt32 && n <= math.MaxInt32 {
			return bsoncore.AppendInt32Element(dst, name, int32(n)), nil
		}
		return bsoncore.AppendInt64Element(dst, name, n), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("has a number out of range: %s", text)
	}
	if !sameNumber(text, strconv.FormatFloat(f, 'e', -1, 64)) {
		if dec, err := bson.ParseDecimal128(text); err == nil {
			high, low := dec.GetBytes()
			return bsoncore.AppendDecimal128Element(dst, name, high, low), nil
		}
	}
	return bsoncore.AppendDoubleElement(dst, name, f), nil
}

// sameNumber says whether two JSON numbers have the same digits at the same places.
func sameNumber(a, b string) bool {
	da, ea := significant(a)
	db, eb := significant(b)
	return da == db && (ea == eb || da == "")
}

// significant splits a number into its digits without zeros at either end, and the power of ten of the first one.
func significant(s string) (digits string, exponent int) {
	s = strings.TrimPrefix(s, "-")
	if at := strings.IndexAny(s, "eE"); at >= 0 {
		exponent, _ = strconv.Atoi(strings.TrimPrefix(s[at+1:], "+"))
		s = s[:at]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	exponent += len(whole) - (len(whole+fraction) - len(digits))
	return strings.TrimRight(digits, "0"), exponent
}
