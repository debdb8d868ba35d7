package outbox_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/outbox/outboxtest"
)

const (
	resumable    = "ResumableChangeStreamError"
	nonResumable = "NonResumableChangeStreamError"
)

// fate is what becomes of a stream.
type fate bool

const (
	goesOn fate = true  // opened again at its place: nothing is lost or doubled
	isLost fate = false // ErrHistoryLost: a scan
)

// A19, and what MongoDB 4.4 was seen to answer: each error to the stream's getMore, to its own opening, and to Watch.
// A token that can't be read is refused for good by an opening, which sends it as it is. To a getMore such an
// error can only be an answer to the driver's own resuming, which sends the token another way.
var streamErrors = []struct {
	name                    string
	code                    int32
	labels                  []string
	getMore, opening, watch fate
}{
	{"CursorNotFound", 43, nil, goesOn, goesOn, goesOn},
	{"Interrupted", 11601, nil, goesOn, goesOn, goesOn},
	{"CursorKilled", 237, nil, goesOn, goesOn, goesOn},
	{"NotWritablePrimary", 10107, []string{resumable}, goesOn, goesOn, goesOn},
	{"NotPrimaryNoSecondaryOk", 13435, []string{resumable}, goesOn, goesOn, goesOn},
	{"Unauthorized", 13, nil, goesOn, goesOn, goesOn}, // whoever takes the right away may give it back
	{"Location40573", 40573, nil, goesOn, goesOn, goesOn},
	{"SomethingNew", 99999, nil, goesOn, goesOn, goesOn},
	{"InvalidResumeToken", 260, nil, goesOn, isLost, isLost},
	{"Location50811", 50811, nil, goesOn, isLost, isLost},
	{"FailedToParse", 9, nil, goesOn, isLost, isLost},
	{"Location40647", 40647, nil, goesOn, isLost, isLost},
	{"ChangeStreamFatalError", 280, []string{nonResumable}, isLost, isLost, isLost},
	{"ChangeStreamHistoryLost", 286, []string{nonResumable}, isLost, isLost, isLost},
	{"CappedPositionLost", 136, nil, isLost, isLost, isLost},
	{"SomethingNewAndLabelled", 99998, []string{nonResumable}, isLost, isLost, isLost},
}

func TestCase_A19_WhatEachErrorMeans(t *testing.T) {
	t.Parallel()
	for _, f := range streamErrors {
		fail := func(command string) outboxtest.Rule {
			return outboxtest.Fail(1, command, int(f.code), f.name, f.labels...)
		}
		t.Run(f.name+" to getMore", func(t *testing.T) {
			t.Parallel()
			meets(t, f.getMore, fail("getMore"))
		})
		t.Run(f.name+" to an opening", func(t *testing.T) {
			t.Parallel()
			rule := fail("$changeStream")
			killed := outboxtest.Fail(1, "getMore", 11601, "Interrupted") // the driver leaves it to us to open again
			meets(t, f.opening, func(c outboxtest.Command) outboxtest.Verdict {
				if c.Name == "getMore" {
					return killed(c)
				}
				return rule(c)
			})
		})
		t.Run(f.name+" to Watch", func(t *testing.T) {
			t.Parallel()
			b, proxy := setup(t, outbox.Config{})
			st := b.Watch(outbox.WatchOptions{})
			expect(b, st)
			token, at := st.Place()
			proxy.Set(outboxtest.Fail(-1, "$changeStream", int(f.code), f.name, f.labels...))
			ctx := context.WithoutCancel(b.Ctx) // with a deadline the driver tries until then
			_, err := b.Store.Watch(ctx, outbox.WatchOptions{After: token, At: at.Timestamp, Index: at.Index})
			if err == nil || errors.Is(err, outbox.ErrHistoryLost) != (f.watch == isLost) {
				t.Errorf("with a token: %v", err)
			}
			refused := f.watch == isLost && f.getMore == goesOn
			_, err = b.Store.Watch(ctx, outbox.WatchOptions{})
			if err == nil || refused && errors.Is(err, outbox.ErrHistoryLost) {
				t.Errorf("without a token there is none to refuse: %v", err)
			}
		})
	}
}

// meets lets a stream run into an error.
func meets(t *testing.T, want fate, rule outboxtest.Rule) {
	reg := prometheus.NewRegistry()
	b, proxy := setup(t, outbox.Config{Metrics: reg})
	st := b.Watch(outbox.WatchOptions{})
	expect(b, st)
	var met atomic.Bool
	proxy.Set(func(c outboxtest.Command) outboxtest.Verdict {
		v := rule(c)
		if v.Reply != nil {
			met.Store(true)
		}
		return v
	})
	if want == goesOn {
		expect(b, st)
		if !met.Load() {
			t.Error("the error was not met")
		}
		return
	}
	if _, err := readToError(b, st); !errors.Is(err, outbox.ErrHistoryLost) {
		t.Fatalf("got %v", err)
	}
	if _, again := st.Next(b.Ctx); !errors.Is(again, outbox.ErrHistoryLost) || st.Trouble() == nil {
		t.Errorf("afterwards: %v", again)
	}
	if n := counted(t, reg, "lastmile_outbox_history_lost_total"); n != 1 {
		t.Errorf("history lost %v times", n)
	}
}

// The driver resumes behind a dropped collection's last event with a token that only an opening of our own may use.
func TestStream_SurvivesTheDriversOwnResuming(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{})
	st := b.Watch(outbox.WatchOptions{})
	expect(b, st)
	var resumed atomic.Int32
	proxy.Set(func(c outboxtest.Command) outboxtest.Verdict {
		switch {
		case c.Name == "getMore" && resumed.Load() == 0:
			return outboxtest.Verdict{Reply: failure(43, "CursorNotFound")}
		case c.OpensStream() && c.Body.Lookup("pipeline", "0", "$changeStream", "resumeAfter").Type == bson.TypeEmbeddedDocument:
			resumed.Add(1)
			return outboxtest.Verdict{Reply: failure(260, "InvalidResumeToken")}
		}
		return outboxtest.Verdict{}
	})
	expect(b, st)
	if resumed.Load() == 0 {
		t.Error("the driver did not resume by itself")
	}
}

// Whether or not a server calls an event that is over 16 MB non-resumable: the stream gets past it.
func TestStream_PastGiantsWhateverTheLabel(t *testing.T) {
	t.Parallel()
	b, proxy := setup(t, outbox.Config{})
	st := b.Watch(outbox.WatchOptions{})
	expect(b, st)
	proxy.Set(outboxtest.Fail(1, "getMore", 10334, "BSONObjectTooLarge", nonResumable))
	ids := b.Publish(1)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		changes, err := st.Next(b.Ctx)
		b.Must(err)
		if len(changes) > 0 {
			if changes[0].Event.ID != ids[0] {
				t.Errorf("got %v", outboxtest.IDs(changes))
			}
			return
		}
	}
	t.Fatalf("nothing came; trouble: %v", st.Trouble())
}
