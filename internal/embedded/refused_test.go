package embedded_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
)

// What MongoDB 4.4 refuses to store is refused: whoever tries his application here is not to find out later.
func TestWrites_RefusedAsByA44(t *testing.T) {
	t.Parallel()
	c := dialRaw(t, startMongo(t, embedded.MongoConfig{}))
	deep := func(levels int) string { // with the document itself
		return strings.Repeat(`{"a": `, levels-1) + "1" + strings.Repeat("}", levels-1)
	}
	insert := func(doc string) string { return `{"insert": "c", "documents": [` + doc + `]}` }
	upsert := func(id, u string) string {
		return fmt.Sprintf(`{"update": "c", "updates": [{"q": {"_id": %q}, "u": %s, "upsert": true}]}`, id, u)
	}
	c.must(insert(`{"_id": "there"}`))
	for _, f := range []struct {
		command string
		code    int64
	}{
		{insert(`{"_id": "180 levels", "d": ` + deep(180) + `}`), 0},
		{insert(`{"_id": "181 levels", "d": ` + deep(181) + `}`), 15},
		{insert(`{"_id": "arrays too", "d": ` + strings.Repeat("[", 180) + strings.Repeat("]", 180) + `}`), 15},
		{insert(`{"_id": "inside", "d": {"$x": 1, "a.b": {"$y": 1}}}`), 0},
		{insert(`{"_id": "outside", "$x": 1}`), 2},
		{insert(`{"_id": {"a": 1}}`), 0},
		{insert(`{"_id": {"$a": 1}}`), 52},
		{upsert("new 1", `{"$set": {"d": {"$x": 1}}}`), 52},
		{upsert("new 2", `{"$setOnInsert": {"d": [{"a": {"$x": 1}}]}}`), 52},
		{upsert("there", `{"$set": {"d": {"$x": 1}}}`), 52},
		{upsert("there", `{"$set": {"d": {"$ref": "c", "$id": 1}}}`), 0},
		{upsert("there", `{"$set": {"d": `+deep(180)+`}}`), 0},
		{upsert("there", `{"$set": {"d": `+deep(181)+`}}`), 15},
		{upsert("inside", `{"$set": {"other": 1}}`), 0}, // what is there already stays
		{upsert("there", `{"$set": {}}`), 9},
	} {
		reply := c.run(commandJSON(t, f.command))
		code, _ := reply.Lookup("writeErrors", "0", "code").AsInt64OK()
		if ok, _ := reply.Lookup("ok").AsInt64OK(); ok != 1 || code != f.code {
			t.Errorf("%.90s: want %d, got %s", f.command, f.code, reply)
		}
	}
}
