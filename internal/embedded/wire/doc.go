// Package wire reads and writes messages of the MongoDB wire protocol: OP_MSG
// (body and document-sequence sections) and the legacy OP_QUERY/OP_REPLY pair,
// which drivers still use for their very first hello.
//
// It owns the framing and nothing else: it knows no command. Everything it
// reads comes from a peer that is not trusted: the length of a message is
// checked before a byte of it is allocated, every section is bounded by the
// message, and every document is validated, nested ones too, before it is
// handed on. A message that breaks a rule gives an error that wraps
// [ErrMalformed]; the connection it came on can't be resynchronised and has to
// be closed.
//
// Test against it with any io.Reader; FuzzMessage in this folder feeds it
// arbitrary bytes.
package wire
