package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// parseQuery reads an OP_QUERY, of which only commands ("<db>.$cmd") are left
// in use.
func (m *Message) parseQuery(p []byte) error {
	if len(p) < 4 {
		return fmt.Errorf("%w: no flags", ErrMalformed)
	}
	name, rest, err := takeCString(p[4:])
	if err != nil {
		return err
	}
	db, isCommand := strings.CutSuffix(name, ".$cmd")
	if !isCommand || len(rest) < 8 {
		return fmt.Errorf("%w: a legacy query that is no command", ErrMalformed)
	}
	body, _, err := takeDocument(rest[8:])
	if err != nil {
		return err
	}
	m.Legacy, m.DB, m.Body = true, db, body
	return nil
}

func takeCString(p []byte) (string, []byte, error) {
	end := bytes.IndexByte(p, 0)
	if end < 0 {
		return "", nil, fmt.Errorf("%w: unterminated name", ErrMalformed)
	}
	return string(p[:end]), p[end+1:], nil
}

func takeDocument(p []byte) (bson.Raw, []byte, error) {
	if len(p) < 5 {
		return nil, nil, fmt.Errorf("%w: short document", ErrMalformed)
	}
	size := int(int32(binary.LittleEndian.Uint32(p)))
	if size < 5 || size > len(p) {
		return nil, nil, fmt.Errorf("%w: document length %d", ErrMalformed, size)
	}
	doc := bson.Raw(p[:size:size])
	if err := validate(doc, 0); err != nil {
		return nil, nil, err
	}
	return doc, p[size:], nil
}

// validate walks all levels: bson.Raw.Validate looks at the outermost only, and
// whoever decodes the document later must not meet a broken one.
func validate(doc bson.Raw, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: nested deeper than %d", ErrMalformed, maxDepth)
	}
	if err := doc.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	elements, err := doc.Elements()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	for _, e := range elements {
		v := e.Value()
		if v.Type != bson.TypeEmbeddedDocument && v.Type != bson.TypeArray {
			continue
		}
		if err := validate(bson.Raw(v.Value), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// AppendReply appends the reply to m, in the form that m asked for.
func AppendReply(dst []byte, m *Message, id int32, body bson.Raw) []byte {
	start := len(dst)
	op := uint32(opMsg)
	if m.Legacy {
		op = opReply
	}
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(id))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.RequestID))
	dst = binary.LittleEndian.AppendUint32(dst, op)
	if m.Legacy {
		const awaitCapable = 8
		dst = binary.LittleEndian.AppendUint32(dst, awaitCapable)
		dst = append(dst, make([]byte, 12)...) // cursor id, starting from
		dst = binary.LittleEndian.AppendUint32(dst, 1)
	} else {
		dst = binary.LittleEndian.AppendUint32(dst, 0)
		dst = append(dst, 0)
	}
	dst = append(dst, body...)
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}

// AppendCommand appends a command as an OP_MSG request.
func AppendCommand(dst []byte, id int32, body bson.Raw) []byte {
	return AppendReply(dst, &Message{}, id, body)
}
