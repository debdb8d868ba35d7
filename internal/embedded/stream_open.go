package embedded

import (
	"context"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/internal/embedded/store"
)

// streamStage changes an event, or leaves it out by answering nil.
type streamStage func(bson.Raw) (bson.Raw, error)

// streamOptions are those of a $changeStream stage.
type streamOptions struct {
	resumeAfter, startAfter *store.Token
	startAt                 *store.Timestamp
	lookup                  bool
}

// openStream answers an aggregate that begins with $changeStream.
func (r *request) openStream(ctx context.Context, stages []bson.Raw) (bson.D, error) {
	if r.inTxn {
		return nil, store.Errorf(store.CodeOperationNotInTxn, "$changeStream is not allowed in a multi-document transaction")
	}
	if _, ok := r.body.Lookup("aggregate").StringValueOK(); !ok {
		return nil, store.Errorf(store.CodeNotImplemented, "a change stream of a whole database is not supported here")
	}
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	if err := r.checkStreamConcern(); err != nil {
		return nil, err
	}
	options, err := parseStreamOptions(stages[0])
	if err != nil {
		return nil, err
	}
	s := &stream{engine: r.server.engine, ns: ns, lookup: options.lookup}
	if s.stages, err = streamStages(stages[1:]); err != nil {
		return nil, err
	}
	if err := s.position(options); err != nil {
		return nil, err
	}
	return r.openStreamCursor(ctx, ns, s)
}

func (r *request) openStreamCursor(ctx context.Context, ns store.Namespace, s *stream) (bson.D, error) {
	settings, err := document(r.body, "cursor")
	if err != nil {
		return nil, err
	}
	size, err := integer(settings, "batchSize", firstBatchSize)
	if err != nil {
		return nil, err
	}
	b, err := s.next(ctx, size, 0)
	if err != nil {
		return nil, err
	}
	id := int64(0)
	if !b.done {
		id = r.server.cursors.open(ns, s).id
	}
	return cursorReply("firstBatch", id, ns.String(), b), nil
}

func (r *request) checkStreamConcern() error {
	level, ok := r.body.Lookup("readConcern", "level").StringValueOK()
	if ok && level != "majority" {
		return store.Errorf(store.CodeInvalidOptions,
			"Command aggregate does not support { readConcern: { level: %q, provenance: \"clientSupplied\" } } :: caused by :: Aggregation stage $changeStream cannot run with a readConcern other than 'majority'. Current readConcern: %s", level, level)
	}
	return nil
}

func parseStreamOptions(raw bson.Raw) (streamOptions, error) {
	var o streamOptions
	d, ok := raw.Lookup("$changeStream").DocumentOK()
	if !ok {
		return o, store.Errorf(50808, "$changeStream stage expects a document as argument")
	}
	elements, err := d.Elements()
	if err != nil {
		return o, store.Errorf(store.CodeFailedToParse, "decode $changeStream: %s", err)
	}
	for _, e := range elements {
		if err := o.set(e.Key(), e.Value()); err != nil {
			return o, err
		}
	}
	if o.resumeAfter != nil && o.startAfter != nil {
		return o, store.Errorf(50865, "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream stage")
	}
	if o.startAt != nil && (o.resumeAfter != nil || o.startAfter != nil) {
		return o, store.Errorf(40674, "Only one type of resume option is allowed, but multiple were found.")
	}
	return o, nil
}

func (o *streamOptions) set(name string, v bson.RawValue) (err error) {
	switch name {
	case "resumeAfter":
		o.resumeAfter, err = parseToken(v)
	case "startAfter":
		o.startAfter, err = parseToken(v)
	case "startAtOperationTime":
		t, i, ok := v.TimestampOK()
		if !ok {
			return store.Errorf(store.CodeTypeMismatch, "BSON field '$changeStream.startAtOperationTime' must be of type timestamp")
		}
		o.startAt = &store.Timestamp{T: t, I: i}
	case "fullDocument":
		mode, _ := v.StringValueOK()
		if mode != "default" && mode != "updateLookup" {
			return store.Errorf(store.CodeNotImplemented, "$changeStream: fullDocument %s is not supported here", v)
		}
		o.lookup = mode == "updateLookup"
	case "fullDocumentBeforeChange":
		if mode, _ := v.StringValueOK(); mode != "off" {
			return store.Errorf(store.CodeNotImplemented, "$changeStream: fullDocumentBeforeChange is not supported here")
		}
	case "allChangesForCluster", "showExpandedEvents":
		if on, _ := v.BooleanOK(); on {
			return store.Errorf(store.CodeNotImplemented, "$changeStream: %s is not supported here", name)
		}
	default:
		return store.Errorf(40415, "BSON field '$changeStream.%s' is an unknown field.", name)
	}
	return err
}

func parseToken(v bson.RawValue) (*store.Token, error) {
	d, ok := v.DocumentOK()
	if !ok {
		return nil, store.Errorf(store.CodeTypeMismatch, "a resume token must be a document")
	}
	data, ok := d.Lookup("_data").StringValueOK()
	if !ok {
		return nil, store.Errorf(40647, "Bad resume token: _data of missing or of wrong type. Expected string, got %s", store.ShellDocument(d))
	}
	t, err := store.ParseToken(data)
	return &t, err
}

// streamStages reads what follows $changeStream: $match and $project.
func streamStages(raw []bson.Raw) ([]streamStage, error) {
	var out []streamStage
	for _, s := range raw {
		first, err := s.IndexErr(0)
		if err != nil {
			return nil, store.Errorf(40323, "A pipeline stage specification object must contain exactly one field.")
		}
		d, ok := first.Value().DocumentOK()
		switch name := first.Key(); {
		case name == "$match" && ok:
			f, err := store.CompileFilter(d)
			if err != nil {
				return nil, err
			}
			out = append(out, matchStage(f))
		case name == "$project" && ok:
			p, err := store.CompileProjection(d)
			if err != nil {
				return nil, err
			}
			out = append(out, p.Apply)
		case name == "$addFields", name == "$set", name == "$unset", name == "$replaceRoot", name == "$redact", name == "$replaceWith":
			return nil, store.Errorf(store.CodeNotImplemented, "%s in a $changeStream pipeline is not supported here", name)
		case strings.HasPrefix(name, "$"):
			return nil, store.Errorf(store.CodeIllegalOperation, "%s is not permitted in a $changeStream pipeline", name)
		default:
			return nil, store.Errorf(40324, "Unrecognized pipeline stage name: '%s'", name)
		}
	}
	return out, nil
}

func matchStage(f *store.Filter) streamStage {
	return func(event bson.Raw) (bson.Raw, error) {
		ok, err := f.Match(event)
		if err != nil || !ok {
			return nil, err
		}
		return event, nil
	}
}

// position finds where in the oplog the stream begins.
func (s *stream) position(o streamOptions) error {
	switch {
	case o.resumeAfter != nil:
		if o.resumeAfter.Invalidate {
			return store.Errorf(store.CodeInvalidResumeToken,
				"Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate notification.")
		}
		return s.resume(*o.resumeAfter)
	case o.startAfter != nil:
		return s.resume(*o.startAfter)
	case o.startAt != nil:
		return s.startAt(*o.startAt)
	}
	// A server begins behind its latest write, and says so by the next time
	// that there could be.
	now := s.engine.OperationTime()
	now.I++
	return s.startAt(now)
}

func (s *stream) startAt(t store.Timestamp) error {
	number, oldest := s.engine.SeekOplog(t)
	if oldest.Compare(t) > 0 {
		return historyLost()
	}
	s.at, s.future, s.token = number, t, store.HighWaterMark(t)
	return nil
}

func historyLost() error {
	return &store.Error{Code: store.CodeChangeStreamHistoryLost, Message: lostMessage, Labels: []string{labelNonResumable}}
}

// resume begins behind a token. If the token names an event that isn't in the
// oplog of this collection, that is found out as a server does: by the first
// event that comes behind it. Until then, and for ever if none comes, the
// stream is silent.
func (s *stream) resume(t store.Token) error {
	number, oldest := s.engine.SeekOplog(t.Time)
	if oldest.Compare(t.Time) > 0 {
		return historyLost()
	}
	s.at, s.after, s.token = number, t, t
	if !t.Event {
		return nil
	}
	named := s.named(number, t)
	switch {
	case named == nil || named.NS != s.ns:
		s.unseen = true
	case !t.Invalidate && (named.Op == store.OpDrop || named.Op == store.OpRename):
		s.pending = named
	}
	return nil
}

// named finds the entry whose event a token names.
func (s *stream) named(number uint64, t store.Token) *store.Entry {
	for {
		read := s.engine.ReadOplog(number, readAhead)
		for _, e := range read.Entries {
			if e.Time != t.Time {
				return nil
			}
			if e.Index == t.Index {
				return e
			}
		}
		if len(read.Entries) == 0 {
			return nil
		}
		number = read.Next
	}
}
