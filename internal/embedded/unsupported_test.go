package embedded_test

import (
	"testing"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
)

func TestUnsupported_IsAnError(t *testing.T) {
	t.Parallel()
	c := dialRaw(t, startMongo(t, embedded.MongoConfig{}))
	for command, code := range map[string]int64{
		`{"aggregate": "c", "pipeline": [{"$changeStream": {}}, {"$addFields": {"x": 1}}], "cursor": {}}`:                238,
		`{"aggregate": "c", "pipeline": [{"$changeStream": {}}, {"$match": {"$expr": {"$dateDiff": 1}}}], "cursor": {}}`: 168,
		`{"aggregate": "c", "pipeline": [{"$changeStream": {}}, {"$match": {"$where": "1"}}], "cursor": {}}`:             2,
		`{"aggregate": "c", "pipeline": [{"$changeStream": {"fullDocumentBeforeChange": "required"}}], "cursor": {}}`:    238,
		`{"aggregate": 1, "pipeline": [{"$changeStream": {}}], "cursor": {}}`:                                            238,
		`{"aggregate": "c", "pipeline": [{"$lookup": {"from": "d"}}], "cursor": {}}`:                                     238,
		`{"aggregate": "c", "pipeline": [{"$group": {"_id": 1, "x": {"$stdDevPop": "$y"}}}], "cursor": {}}`:              238,
		`{"find": "c", "collation": {"locale": "de"}}`:                                                                   238,
		`{"find": "c", "tailable": true}`:                                                                    238,
		`{"find": "c", "filter": {"x": {"$near": [1, 2]}}}`:                                                  2,
		`{"update": "c", "updates": [{"q": {}, "u": [{"$set": {"x": 1}}]}]}`:                                 238,
		`{"mapReduce": "c"}`:                                                                                 59,
		`{"createIndexes": "c", "indexes": [{"key": {"x": "2dsphere"}, "name": "x"}]}`:                       67,
		`{"createIndexes": "c", "indexes": [{"key": {"x": 1}, "name": "x", "collation": {"locale": "de"}}]}`: 67,
		`{"find": "c", "readConcern": {"level": "snapshot"}}`:                                                238,
		`{"delete": "c", "deletes": [{"q": {}, "limit": 0}], "let": {"x": 1}}`:                               238,
		`{"aggregate": "c", "pipeline": [], "explain": true}`:                                                238,
		`{"aggregate": "c", "pipeline": [{"$match": {"$expr": {"$eq": ["$$NOW", 1]}}}], "cursor": {}}`:       238,
		`{"getParameter": 1, "featureCompatibilityVersion": 1}`:                                              59,
		`{"saslStart": 1, "mechanism": "SCRAM-SHA-256"}`:                                                     59,
		`{"create": "c", "capped": true, "size": 1000}`:                                                      40415,
	} {
		reply := c.run(commandJSON(t, command))
		if got, _ := reply.Lookup("code").AsInt64OK(); got != code {
			t.Errorf("%s: want %d, got %s", command, code, reply)
		}
	}
}
