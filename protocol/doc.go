// Package protocol defines what crosses lastmile's boundaries: events as publishers give them, batches
// as they travel from relay to socket server, and the frames, close codes and error codes between socket
// server and client. It encodes, decodes and checks; it does no I/O and imports nothing else of lastmile.
//
// # An event's way through this package
//
//	publisher's JSON ──DecodeEvent──▶ Event ──Validate, Prepare──▶ (outbox) ──NewEnvelope──▶ Envelope
//	Envelope + Pairs = Item ──Split──▶ Batch ──AppendTo──▶ (inbox) ──DecodeBatch──▶ Batch
//	Envelope.Body ──EventsFrame.Add──▶ frame ──▶ browser
//
// The body that the browser reads, a CloudEvents JSON object, is marshalled once, by NewEnvelope. From
// there on it is only spliced; nothing is encoded again per recipient. `data` keeps every token as the
// publisher wrote it, numbers with all their digits, less the white space between them.
//
// # Promises
//
// Decoders take hostile input: the answer is a value or an error, never a panic, and the memory taken is
// bounded by the input's size. What DecodeEvent or Validate lets through can be marshalled, stored as a
// MongoDB document and read by a browser. Validation names every fault, with a JSON Pointer.
// Batches are versioned: a later version is an error (ErrBatch), never a misreading.
//
// Not promised: that two equal events have equal bodies byte for byte if their data differs in the order
// of members or in the writing of numbers. Event, Envelope and Batch are values without locks: who shares
// them between goroutines doesn't change them.
//
// # Failures
//
//	an event that is none              *ValidationError, with every fault
//	a frame that is none               *FrameError with the code to answer; ErrNotUTF8: close with 1007
//	a batch that is none, or damaged   an error wrapping ErrBatch: a dead letter
//
// # Codes
//
// The table in protocol/internal/codes is the only source of close codes and error codes. `go generate
// ./protocol` writes codes_gen.go here, web/client/codes.js and docs/protocol-codes.md from it; a test
// fails while one of the three is not what the table says.
//
// # Testing against it
//
// Nothing needs a double: every function is pure but for the random ids and the clock of Prepare. Golden
// frames are in testdata; fuzz targets exist for each decoder (FuzzDecodeBatch, FuzzDecodeFrame, FuzzDecodeEvent).
package protocol

//go:generate go run ./internal/codes/generate -root ..
