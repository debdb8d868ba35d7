package embedded_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
)

// Bad bytes close the connection that they came on, and no other.
func TestHostile_BadBytesCloseOneConnection(t *testing.T) {
	t.Parallel()
	server := startMongo(t, embedded.MongoConfig{})
	good := dialRaw(t, server)
	good.must(`{"ping": 1}`)
	header := func(size, op uint32) []byte {
		b := binary.LittleEndian.AppendUint32(nil, size)
		b = append(b, make([]byte, 8)...)
		return binary.LittleEndian.AppendUint32(b, op)
	}
	for name, sent := range map[string][]byte{
		"http":            []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"tls":             {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03, 0, 0, 0, 0, 0},
		"negative length": header(0xffffffff, 2013),
		"2 GB":            header(0x7fffffff, 2013),
		"48 MB and one":   header(48_000_001, 2013),
		"too short":       header(3, 2013),
		"unknown opcode":  header(16, 2010),
		"no body":         append(header(20, 2013), 0, 0, 0, 0),
		"bad document":    append(header(26, 2013), 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 0),
	} {
		conn, err := net.Dial("tcp", server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(sent); err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, conn); n != 0 || isTimeout(err) {
			t.Errorf("%s: %d bytes answered, %v", name, n, err)
		}
		_ = conn.Close()
		good.must(`{"ping": 1}`)
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// What is valid BSON and no valid command gets an error, and the connection
// stays.
func TestHostile_OddCommandsGetErrors(t *testing.T) {
	t.Parallel()
	c := dialRaw(t, startMongo(t, embedded.MongoConfig{}))
	c.must(`{"insert": "c", "documents": [{"_id": 1, "a": {"b": [1, {"c": 2}]}, "s": "x", "r": {"$regularExpression": {"pattern": "a", "options": ""}}}]}`)
	for _, command := range []string{
		`{}`,
		`{"find": "c", "filter": 7}`, `{"find": "c", "filter": {"$and": 1}}`, `{"find": "c", "filter": {"$or": []}}`,
		`{"find": "c", "filter": {"a": {"$in": 1}}}`, `{"find": "c", "filter": {"a": {"$mod": [0, 0]}}}`,
		`{"find": "c", "filter": {"a": {"$regex": "("}}}`, `{"find": "c", "sort": {"a": "x"}}`, `{"find": "c", "limit": -1}`,
		`{"find": "c", "projection": {"a": {"$meta": "x"}}}`, `{"find": "c", "projection": {"a": 1, "b": 0}}`, `{"find": "c.$x"}`, `{"find": ""}`,
		`{"insert": "c", "documents": 1}`, `{"insert": "c", "documents": [1]}`, `{"insert": "c"}`,
		`{"update": "c", "updates": [{"q": {}, "u": 1}]}`, `{"update": "c", "updates": [{}]}`,
		`{"delete": "c", "deletes": [{"q": {}}]}`, `{"delete": "c", "deletes": [{"q": {}, "limit": 2}]}`,
		`{"aggregate": "c", "pipeline": [{}], "cursor": {}}`, `{"aggregate": "c", "pipeline": 1}`, `{"aggregate": "c", "pipeline": []}`,
		`{"aggregate": "c", "pipeline": [{"$match": {"$expr": {"$mod": ["$s", 2]}}}], "cursor": {}}`,
		`{"aggregate": "c", "pipeline": [{"$limit": -3}], "cursor": {}}`, `{"aggregate": "c", "pipeline": [{"$group": {}}], "cursor": {}}`,
		`{"aggregate": "c", "pipeline": [{"$changeStream": 1}], "cursor": {}}`,
		`{"getMore": 1, "collection": "c"}`, `{"getMore": {"$numberLong": "1"}, "collection": "c"}`, `{"killCursors": "c"}`,
		`{"commitTransaction": 1}`, `{"abortTransaction": 1, "lsid": {"id": 1}, "txnNumber": {"$numberLong": "1"}, "autocommit": false}`,
		`{"insert": "c", "documents": [{}], "lsid": 1, "txnNumber": {"$numberLong": "1"}, "autocommit": true}`,
		`{"createIndexes": "c", "indexes": [{}]}`, `{"dropIndexes": "c", "index": "none"}`, `{"renameCollection": "x", "to": "y"}`,
		`{"findAndModify": "c", "query": {}}`, `{"distinct": "c"}`, `{"create": 1}`,
	} {
		reply := c.run(commandJSON(t, command))
		if reply.Lookup("ok").AsFloat64() == 1 && reply.Lookup("writeErrors").Type == 0 {
			t.Errorf("%s: no error: %s", command, reply)
		}
		if code, _ := reply.Lookup("code").AsInt64OK(); code == 1 {
			t.Errorf("%s: an internal error: %s", command, reply)
		}
	}
	c.must(`{"ping": 1}`)
}

// lungo panics on types that it doesn't know. That is the one command's error.
func TestHostile_APanicIsTheCommandsError(t *testing.T) {
	t.Parallel()
	c := dialRaw(t, startMongo(t, embedded.MongoConfig{}))
	c.must(`{"insert": "c", "documents": [{"_id": 1, "x": {"$minKey": 1}}]}`)
	reply := c.run(commandJSON(t, `{"find": "c", "filter": {"x": {"$gt": {"$minKey": 1}}}}`))
	if code, _ := reply.Lookup("code").AsInt64OK(); code != 1 {
		t.Fatalf("want an internal error, got %s", reply)
	}
	c.must(`{"insert": "c", "documents": [{"_id": 2}]}`)
	if n := c.must(`{"count": "c"}`).Lookup("n").AsInt64(); n != 2 {
		t.Fatalf("%d documents, want 2", n)
	}
}
