package embedded_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
)

func do(commands ...string) func(p *player) {
	return func(p *player) {
		p.t.Helper()
		for _, c := range commands {
			p.must(c)
		}
	}
}

const onlyType = "which server it is, and what it was built with"

// Not played: 12-standalone, since the embedded server always is a replica set.
var scenarios = []*scenario{
	{
		file: "01-handshake",
		cfg:  embedded.MongoConfig{WireVersion: 9},
		differs: map[string]string{
			"3.*":  onlyType,
			"10.*": "the status has what is read of it: set, members, states and optimes",
		},
	},
	{file: "02-writes"},
	{
		file: "03-find",
		before: map[int]func(*player){
			0: do(`{"insert": "f", "documents": [{"_id":0,"t":5},{"_id":1,"t":4},{"_id":2,"t":3},{"_id":3,"t":2},{"_id":4,"t":1}]}`),
		},
	},
	{
		file:   "04-indexes",
		before: map[int]func(*player){5: do(`{"insert": "i", "documents": [{"_id": 1, "u": 1}]}`)},
	},
	{file: "05-transactions", before: map[int]func(*player){0: do(`{"create": "t"}`)}},
	{
		file: "06-stream",
		before: map[int]func(*player){
			0: do(`{"create": "s"}`),
			2: do(`{"insert": "s", "documents": [{"_id": "a", "x": 1}]}`),
			3: do(
				`{"insert": "s", "documents": [{"_id": "t1"}], "lsid": {"id": {"$binary": {"base64": "Ls2oCjYwSa2FBqCPHcSrhA==", "subType": "04"}}}, "txnNumber": {"$numberLong": "1"}, "autocommit": false, "startTransaction": true}`,
				`{"insert": "s", "documents": [{"_id": "t2"}], "lsid": {"id": {"$binary": {"base64": "Ls2oCjYwSa2FBqCPHcSrhA==", "subType": "04"}}}, "txnNumber": {"$numberLong": "1"}, "autocommit": false}`,
				`{"commitTransaction": 1, "lsid": {"id": {"$binary": {"base64": "Ls2oCjYwSa2FBqCPHcSrhA==", "subType": "04"}}}, "txnNumber": {"$numberLong": "1"}, "autocommit": false}`,
			),
			4:  do(`{"update": "s", "updates": [{"q": {"_id": "a"}, "u": {"$set": {"x": 2}}}]}`),
			5:  do(`{"update": "s", "updates": [{"q": {"_id": "a"}, "u": {"x": 3}}]}`),
			6:  do(`{"delete": "s", "deletes": [{"q": {"_id": "a"}, "limit": 1}]}`),
			7:  do(`{"insert": "elsewhere", "documents": [{"_id": 1}]}`),
			18: do(`{"insert": "s", "documents": [{"_id": "p1", "partition": 1}]}`),
			19: do(`{"insert": "s", "documents": [{"_id": "p2", "partition": 2}]}`, `{"insert": "s", "documents": [{"_id": "p3"}]}`),
			25: do(`{"insert": "later", "documents": [{"_id": 1}]}`),
		},
		send: map[int]func(*player) bson.D{
			15: func(p *player) bson.D { // in the future
				at := time.Now().Add(time.Hour).Unix()
				return commandJSON(p.t, fmt.Sprintf(`{"aggregate": "s", "pipeline": [{"$changeStream": {"startAtOperationTime": {"$timestamp": {"t": %d, "i": 0}}}}], "cursor": {}}`, at))
			},
		},
	},
	{
		file: "07-stream-ends",
		before: map[int]func(*player){
			0:  do(`{"insert": "w", "documents": [{"_id": "a"}]}`, `{"create": "d"}`),
			1:  do(`{"insert": "d", "documents": [{"_id": 1}]}`),
			7:  do(`{"insert": "d", "documents": [{"_id": 2}]}`),
			18: do(`{"create": "e"}`),
		},
	},
	{
		file:  "08-large-event",
		large: true,
		before: map[int]func(*player){
			0:  do(`{"create": "big"}`),
			1:  do(`{"insert": "big", "documents": [{"_id": "before"}]}`),
			4:  do(`{"insert": "big", "documents": [{"_id": "after"}]}`),
			15: do(`{"insert": "big", "documents": [{"_id": "behind"}]}`),
		},
		send: map[int]func(*player) bson.D{
			2:  insertBig("huge", strings.Repeat("x", 16<<20-200)),
			12: insertBig(strings.Repeat("i", 6<<20), ""),
			19: insertBig("huger", strings.Repeat("x", 16777344-28)),
		},
	},
	{
		file: "09-step-down",
		skip: map[int]string{
			2: "one member can't step down", 3: "the same", 4: "the same", 5: "the same",
		},
		before: map[int]func(*player){0: do(`{"create": "e"}`)},
	},
	{
		file:   "10-kill",
		skip:   map[int]string{0: "killOp is not served", 1: "the same", 2: "the same"},
		before: map[int]func(*player){3: do(`{"create": "k"}`)},
		during: map[int]func(*player){4: killWaitingCursor},
	},
	{
		file: "11-history-lost",
		cfg:  embedded.MongoConfig{OplogSize: 10},
		before: map[int]func(*player){
			0: do(`{"create": "h"}`),
			1: do(`{"insert": "h", "documents": [{"_id": "first"}]}`),
			2: func(p *player) {
				for i := range 20 {
					p.must(fmt.Sprintf(`{"insert": "other", "documents": [{"_id": %d}]}`, i))
				}
			},
		},
	},
}

func insertBig(id, x string) func(*player) bson.D {
	return func(*player) bson.D {
		doc := bson.D{{Key: "_id", Value: id}}
		if x != "" {
			doc = append(doc, bson.E{Key: "x", Value: x})
		}
		return bson.D{{Key: "insert", Value: "big"}, {Key: "documents", Value: bson.A{doc}}, {Key: "$db", Value: "facts"}}
	}
}

// killWaitingCursor kills the cursor of a getMore when that is under way: a
// server says so to a second getMore on the same cursor.
func killWaitingCursor(p *player) {
	p.t.Helper()
	other := dialRaw(p.t, p.server)
	probe := bson.D{{Key: "getMore", Value: p.lastCursor}, {Key: "collection", Value: "k"}, {Key: "maxTimeMS", Value: 1}, {Key: "$db", Value: "facts"}}
	const inUse = 12051
	for deadline := time.Now().Add(30 * time.Second); ; {
		if code, _ := other.run(probe).Lookup("code").AsInt64OK(); code == inUse {
			break
		}
		if time.Now().After(deadline) {
			p.t.Fatal("the getMore is not under way after 30s")
		}
	}
	other.run(bson.D{{Key: "killCursors", Value: "k"}, {Key: "cursors", Value: bson.A{p.lastCursor}}, {Key: "$db", Value: "facts"}})
}

func TestRecordings(t *testing.T) {
	t.Parallel()
	for _, sc := range scenarios {
		t.Run(sc.file, func(t *testing.T) {
			t.Parallel()
			sc.play(t)
		})
	}
}
