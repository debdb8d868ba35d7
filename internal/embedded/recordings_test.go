package embedded_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
)

// The recordings under testdata/mongod are what a real server (4.4.6) answered.
// The tests here send the same commands, and compare the replies: every field,
// type, code, label and text. What differs from run to run (ids, times, the
// UUIDs in tokens) is mapped or masked. What differs on purpose stands in the
// scenario, with the reason.

type recording struct {
	Steps []struct {
		Note  string
		Send  json.RawMessage
		Reply json.RawMessage
	}
}

// scenario is how a recording is played.
type scenario struct {
	file  string
	large bool
	cfg   embedded.MongoConfig
	// before is what happened before a step, and was not recorded.
	before map[int]func(p *player)
	// during runs while a step's reply is awaited.
	during map[int]func(p *player)
	// send replaces a command that was recorded shortened.
	send map[int]func(p *player) bson.D
	skip map[int]string
	// differs names paths ("step.path", a * for the step or at the end) and why
	// they are not as recorded.
	differs map[string]string
}

type player struct {
	*rawClient
	sc     *scenario
	server *embedded.Mongo
	step   int
	// recorded → of this run
	cursors    map[int64]int64
	tokens     map[string]string
	times      map[bson.Timestamp]bson.Timestamp
	lastCursor int64
}

func (sc *scenario) play(t *testing.T) {
	if testing.Short() && sc.large {
		t.Skip("it moves some 200 MB")
	}
	sc.cfg.IdleWrite = time.Hour // it moves the tokens of idle streams
	server := startMongo(t, sc.cfg)
	p := &player{
		rawClient: dialRaw(t, server), sc: sc, server: server,
		cursors: map[int64]int64{}, tokens: map[string]string{}, times: map[bson.Timestamp]bson.Timestamp{},
	}
	raw, err := os.ReadFile(filepath.Join("testdata", "mongod", sc.file+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var rec recording
	if err := json.Unmarshal(raw, &rec); err != nil {
		t.Fatal(err)
	}
	for i, step := range rec.Steps {
		p.step = i
		if _, skipped := sc.skip[i]; skipped || step.Send == nil {
			continue
		}
		if f := sc.before[i]; f != nil {
			f(p)
		}
		p.playStep(step.Send, step.Reply)
	}
}

func (p *player) playStep(send, reply json.RawMessage) {
	p.t.Helper()
	var command bson.D
	if f := p.sc.send[p.step]; f != nil {
		command = f(p)
	} else {
		command = p.translate(p.parse(send)).(bson.D)
	}
	p.rawClient.send(command)
	if f := p.sc.during[p.step]; f != nil {
		f(p)
	}
	got := p.receive()
	if id, ok := got.Lookup("cursor", "id").Int64OK(); ok && id != 0 {
		p.lastCursor = id
	}
	if reply[0] == '"' { // recorded shortened: only a good reply is
		if got.Lookup("ok").AsFloat64() != 1 {
			p.t.Errorf("%s step %d: %.500s", p.sc.file, p.step, got)
		}
		return
	}
	var d bson.D
	if err := bson.Unmarshal(got, &d); err != nil {
		p.t.Fatal(err)
	}
	p.compare("", p.parse(reply), d)
}

func (p *player) parse(raw json.RawMessage) bson.D {
	var d bson.D
	if err := bson.UnmarshalExtJSON(raw, true, &d); err != nil {
		p.t.Fatalf("%s step %d: %v", p.sc.file, p.step, err)
	}
	return d
}

// translate puts this run's ids, tokens and times in the place of the recorded.
func (p *player) translate(v any) any {
	switch v := v.(type) {
	case bson.D:
		out := bson.D{}
		for _, e := range v {
			if e.Key == "getMore" {
				if id, known := p.cursors[e.Value.(int64)]; known {
					e.Value = id
				} else {
					e.Value = p.lastCursor
				}
				out = append(out, e)
				continue
			}
			out = append(out, bson.E{Key: e.Key, Value: p.translate(e.Value)})
		}
		return out
	case bson.A:
		out := bson.A{}
		for _, item := range v {
			out = append(out, p.translate(item))
		}
		return out
	case int64:
		if id, ok := p.cursors[v]; ok {
			return id
		}
	case string:
		if token, ok := p.tokens[v]; ok {
			return token
		}
	case bson.Timestamp:
		if ts, ok := p.times[v]; ok {
			return ts
		}
	}
	return v
}

func (p *player) differs(path string) bool {
	for pattern := range p.sc.differs {
		step, rest, _ := strings.Cut(pattern, ".")
		if step != "*" && step != fmt.Sprint(p.step) {
			continue
		}
		prefix, wild := strings.CutSuffix(rest, "*")
		if rest == path || (wild && strings.HasPrefix(path, prefix)) {
			return true
		}
	}
	return false
}

func (p *player) compare(path string, want, got any) {
	p.t.Helper()
	if p.differs(path) {
		return
	}
	switch want := want.(type) {
	case bson.D:
		d, ok := got.(bson.D)
		if !ok {
			p.fail(path, want, got)
			return
		}
		p.compareDocuments(path, want, d)
	case bson.A:
		a, ok := got.(bson.A)
		if !ok || len(a) != len(want) {
			p.fail(path, want, got)
			return
		}
		for i := range want {
			p.compare(fmt.Sprintf("%s.%d", path, i), want[i], a[i])
		}
	default:
		p.compareValues(path, want, got)
	}
}

func (p *player) compareDocuments(path string, want, got bson.D) {
	p.t.Helper()
	for _, w := range want {
		sub := strings.TrimPrefix(path+"."+w.Key, ".")
		i := slices.IndexFunc(got, func(e bson.E) bool { return e.Key == w.Key })
		if i < 0 {
			if !p.differs(sub) {
				p.fail(sub, w.Value, "nothing")
			}
			continue
		}
		p.compare(sub, w.Value, got[i].Value)
	}
	for _, g := range got {
		sub := strings.TrimPrefix(path+"."+g.Key, ".")
		if !slices.ContainsFunc(want, func(e bson.E) bool { return e.Key == g.Key }) && !p.differs(sub) {
			p.fail(sub, "nothing", g.Value)
		}
	}
}

func (p *player) fail(path string, want, got any) {
	p.t.Helper()
	p.t.Errorf("%s step %d, %s:\nwant %T %.300v\n got %T %.300v", p.sc.file, p.step, path, want, want, got, got)
}

// volatile values only need the recorded type.
var volatile = regexp.MustCompile(`(^|\.)(processId|hosts\.0|primary|me|connectionId|electionId|uuid)$`)

func (p *player) compareValues(path string, want, got any) {
	p.t.Helper()
	if fmt.Sprintf("%T", want) != fmt.Sprintf("%T", got) {
		p.fail(path, want, got)
		return
	}
	switch w := want.(type) {
	case bson.Timestamp:
		if path == "operationTime" {
			p.times[w] = got.(bson.Timestamp)
		}
		return
	case bson.DateTime:
		return
	case int64:
		if path == "cursor.id" && w != 0 && got != int64(0) {
			p.cursors[w] = got.(int64)
			return
		}
		want = p.translate(w)
	case string:
		if strings.HasSuffix(path, "._data") {
			p.tokens[w] = got.(string)
		}
		want, got = p.mask(w), p.mask(got.(string))
	}
	if !volatile.MatchString(path) && fmt.Sprint(want) != fmt.Sprint(got) {
		p.fail(path, want, got)
	}
}

var tokenTime = regexp.MustCompile(`82[0-9A-F]{16}(2B02)`)
var tokenUUID = regexp.MustCompile(`5A1004[0-9A-F]{32}`)
var runNumber = regexp.MustCompile(`(cursor id |RecordId\()\d+`)

// mask leaves of a token what doesn't depend on the run: its structure and the
// document's key.
func (p *player) mask(s string) string {
	s = tokenTime.ReplaceAllString(s, "82<time>$1")
	s = tokenUUID.ReplaceAllString(s, "5A1004<uuid>")
	return runNumber.ReplaceAllString(s, "$1<number>")
}
