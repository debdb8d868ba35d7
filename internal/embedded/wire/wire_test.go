package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"github.com/lastmile-gateway/lastmile/internal/embedded/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func document(t testing.TB, d bson.D) bson.Raw {
	t.Helper()
	raw, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestRead_CommandAndReplyAreReadBack(t *testing.T) {
	t.Parallel()
	body := document(t, bson.D{{Key: "ping", Value: 1}, {Key: "$db", Value: "x"}})
	m, err := wire.Read(bytes.NewReader(wire.AppendCommand(nil, 7, body)))
	if err != nil {
		t.Fatal(err)
	}
	if m.RequestID != 7 || !bytes.Equal(m.Body, body) || m.Legacy || m.NoReply {
		t.Fatalf("got %+v", m)
	}
	reply := wire.AppendReply(nil, m, 8, body)
	if got := binary.LittleEndian.Uint32(reply[8:]); got != 7 {
		t.Fatalf("the reply is to %d", got)
	}
}

func TestRead_Sequences(t *testing.T) {
	t.Parallel()
	a, b := document(t, bson.D{{Key: "_id", Value: 1}}), document(t, bson.D{{Key: "_id", Value: 2}})
	section := append([]byte("documents\x00"), a...)
	section = append(section, b...)
	msg := wire.AppendCommand(nil, 1, document(t, bson.D{{Key: "insert", Value: "c"}}))
	msg = append(msg, 1)
	msg = binary.LittleEndian.AppendUint32(msg, uint32(len(section)+4))
	msg = append(msg, section...)
	binary.LittleEndian.PutUint32(msg, uint32(len(msg)))
	m, err := wire.Read(bytes.NewReader(msg))
	if err != nil {
		t.Fatal(err)
	}
	docs := m.Sequences["documents"]
	if len(docs) != 2 || !bytes.Equal(docs[0], a) || !bytes.Equal(docs[1], b) {
		t.Fatalf("got %v", docs)
	}
}

func TestRead_EndsAreTold(t *testing.T) {
	t.Parallel()
	msg := wire.AppendCommand(nil, 1, document(t, bson.D{{Key: "ping", Value: 1}}))
	if _, err := wire.Read(bytes.NewReader(nil)); !errors.Is(err, io.EOF) {
		t.Fatalf("nothing: %v", err)
	}
	for n := 1; n < len(msg); n++ {
		if _, err := wire.Read(bytes.NewReader(msg[:n])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
}

// A length that is a lie costs no memory: it is refused, or read as it comes.
func TestRead_LengthsAreNotTrusted(t *testing.T) {
	t.Parallel()
	header := make([]byte, 16)
	binary.LittleEndian.PutUint32(header, wire.MaxMessageSize)
	binary.LittleEndian.PutUint32(header[12:], 2013)
	allocated := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := wire.Read(bytes.NewReader(header)); !errors.Is(err, io.ErrUnexpectedEOF) {
				b.Fatal(err)
			}
		}
	}).AllocedBytesPerOp()
	if allocated > 2<<20 {
		t.Errorf("48 MB announced and nothing sent cost %d bytes", allocated)
	}
	binary.LittleEndian.PutUint32(header, wire.MaxMessageSize+1)
	if _, err := wire.Read(bytes.NewReader(header)); !errors.Is(err, wire.ErrMalformed) {
		t.Fatalf("got %v", err)
	}
}

func TestRead_NestingIsBounded(t *testing.T) {
	t.Parallel()
	deep := document(t, bson.D{})
	for range 300 {
		deep = document(t, bson.D{{Key: "a", Value: deep}})
	}
	_, err := wire.Read(bytes.NewReader(wire.AppendCommand(nil, 1, deep)))
	if !errors.Is(err, wire.ErrMalformed) {
		t.Fatalf("got %v", err)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add(wire.AppendCommand(nil, 1, document(f, bson.D{{Key: "ping", Value: 1}, {Key: "$db", Value: "a"}})))
	f.Add(wire.AppendCommand(nil, 1, document(f, bson.D{{Key: "a", Value: bson.A{1, bson.D{{Key: "b", Value: "c"}}}}})))
	query := append([]byte{0, 0, 0, 0}, "admin.$cmd\x00\x00\x00\x00\x00\xff\xff\xff\xff"...)
	query = append(query, document(f, bson.D{{Key: "isMaster", Value: 1}})...)
	head := binary.LittleEndian.AppendUint32(nil, uint32(16+len(query)))
	head = binary.LittleEndian.AppendUint32(append(head, make([]byte, 8)...), 2004)
	f.Add(append(head, query...))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := wire.Read(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, wire.ErrMalformed) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		// What is accepted can be decoded to the end.
		for _, doc := range append(m.Sequences["documents"], m.Body) {
			var d bson.D
			_ = bson.Unmarshal(doc, &d)
		}
		again, err := wire.Read(bytes.NewReader(wire.AppendCommand(nil, m.RequestID, m.Body)))
		if err != nil || !bytes.Equal(again.Body, m.Body) {
			t.Fatalf("written and read again: %v", err)
		}
	})
}
