package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// MaxMessageSize is the largest message that is read: 48,000,000 bytes, what a
// server announces as maxMessageSizeBytes.
const MaxMessageSize = 48_000_000

// maxDepth bounds nested documents. A server refuses more than 100 levels when
// it stores one; 200 leaves room for the command around it.
const maxDepth = 200

const headerSize = 16

// Opcodes of the wire protocol.
const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013
)

// Flag bits of OP_MSG.
const (
	flagChecksum   = 1 << 0
	flagMoreToCome = 1 << 1
)

// ErrMalformed is wrapped by every error of [Read] that is due to the bytes
// themselves: a bad length, opcode, section, checksum or document.
var ErrMalformed = errors.New("malformed message")

// Message is one request, of either opcode.
type Message struct {
	// RequestID is what the reply names as the message it answers.
	RequestID int32
	// Body is the command document.
	Body bson.Raw
	// Sequences holds the document-sequence sections by their identifier, such
	// as the documents of an insert.
	Sequences map[string][]bson.Raw
	// DB is the database of a legacy query; an OP_MSG names it in $db.
	DB string
	// Legacy says that the message was an OP_QUERY and wants an OP_REPLY.
	Legacy bool
	// NoReply says that the client does not read a reply (moreToCome).
	NoReply bool
}

// Read reads one message. It returns io.EOF if the stream ended before its first
// byte, an error that wraps [ErrMalformed] if the bytes are none, and the
// reader's error otherwise.
func Read(r io.Reader) (*Message, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := int32(binary.LittleEndian.Uint32(header[0:]))
	if size < headerSize || size > MaxMessageSize {
		return nil, fmt.Errorf("read message: %w: length %d", ErrMalformed, size)
	}
	op := int32(binary.LittleEndian.Uint32(header[12:]))
	if op != opMsg && op != opQuery {
		return nil, fmt.Errorf("read message: %w: unsupported opcode %d", ErrMalformed, op)
	}
	payload, err := readPayload(r, int(size)-headerSize)
	if err != nil {
		return nil, err
	}
	m := &Message{RequestID: int32(binary.LittleEndian.Uint32(header[4:]))}
	if op == opQuery {
		err = m.parseQuery(payload)
	} else {
		err = m.parseMsg(header[:], payload)
	}
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	return m, nil
}

// readPayload grows with what really arrives, so that a peer who announces
// 48 MB and sends nothing costs little.
func readPayload(r io.Reader, size int) ([]byte, error) {
	const step = 1 << 20
	buf := make([]byte, 0, min(size, step))
	for len(buf) < size {
		n := min(step, size-len(buf))
		if cap(buf)-len(buf) < n {
			grown := make([]byte, len(buf), min(size, max(2*cap(buf), len(buf)+n)))
			copy(grown, buf)
			buf = grown
		}
		chunk := buf[len(buf) : len(buf)+n]
		if _, err := io.ReadFull(r, chunk); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		buf = buf[:len(buf)+n]
	}
	return buf, nil
}

func (m *Message) parseMsg(header, p []byte) error {
	if len(p) < 4 {
		return fmt.Errorf("%w: no flags", ErrMalformed)
	}
	flags := binary.LittleEndian.Uint32(p)
	if unknown := flags & 0xffff &^ (flagChecksum | flagMoreToCome); unknown != 0 {
		return fmt.Errorf("%w: unknown required flags %#x", ErrMalformed, unknown)
	}
	m.NoReply = flags&flagMoreToCome != 0
	if flags&flagChecksum != 0 {
		if len(p) < 8 {
			return fmt.Errorf("%w: no checksum", ErrMalformed)
		}
		end := len(p) - 4
		sum := crc32.Update(crc32.Checksum(header, castagnoli), castagnoli, p[:end])
		if sum != binary.LittleEndian.Uint32(p[end:]) {
			return fmt.Errorf("%w: checksum differs", ErrMalformed)
		}
		p = p[:end]
	}
	return m.parseSections(p[4:])
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (m *Message) parseSections(p []byte) error {
	for len(p) > 0 {
		kind, rest := p[0], p[1:]
		var err error
		switch kind {
		case 0:
			if m.Body != nil {
				return fmt.Errorf("%w: two bodies", ErrMalformed)
			}
			m.Body, p, err = takeDocument(rest)
		case 1:
			p, err = m.parseSequence(rest)
		default:
			err = fmt.Errorf("%w: section kind %d", ErrMalformed, kind)
		}
		if err != nil {
			return err
		}
	}
	if m.Body == nil {
		return fmt.Errorf("%w: no body", ErrMalformed)
	}
	return nil
}

func (m *Message) parseSequence(p []byte) ([]byte, error) {
	if len(p) < 4 {
		return nil, fmt.Errorf("%w: short sequence", ErrMalformed)
	}
	size := int(int32(binary.LittleEndian.Uint32(p)))
	if size < 5 || size > len(p) {
		return nil, fmt.Errorf("%w: sequence length %d", ErrMalformed, size)
	}
	section, rest := p[4:size], p[size:]
	name, section, err := takeCString(section)
	if err != nil {
		return nil, err
	}
	if _, twice := m.Sequences[name]; twice {
		return nil, fmt.Errorf("%w: two sequences of one name", ErrMalformed)
	}
	docs := []bson.Raw{}
	for len(section) > 0 {
		var doc bson.Raw
		if doc, section, err = takeDocument(section); err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	if m.Sequences == nil {
		m.Sequences = map[string][]bson.Raw{}
	}
	m.Sequences[name] = docs
	return rest, nil
}
