package embedded

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/internal/embedded/store"
	"github.com/lastmile-gateway/lastmile/internal/embedded/wire"
)

// request is one command under way.
type request struct {
	server *Mongo
	connID int32
	name   string
	db     string
	body   bson.Raw
	seqs   map[string][]bson.Raw
	legacy bool

	// of a session; nil and zero without one
	lsid      bson.Raw
	session   *session
	txnNumber int64
	inTxn     bool
}

// spec is what is known of a command.
type spec struct {
	run func(context.Context, *request) (bson.D, error)
	// fields are the ones that it understands, besides the generic ones; nil:
	// it takes any.
	fields []string
	// txn: allowed in a transaction. write: remembered, so that it is done once
	// when it is sent twice.
	txn, write bool
}

var commands map[string]spec

// The table is filled here since its functions refer to it.
func init() {
	commands = map[string]spec{}
	for _, part := range []map[string]spec{helloCommands, writeCommands, readCommands, cursorCommands, ddlCommands, txnCommands} {
		for name, s := range part {
			commands[name] = s
		}
	}
}

// aliases are the other spellings that are in use.
var aliases = map[string]string{"ismaster": "isMaster", "buildinfo": "buildInfo", "findandmodify": "findAndModify"}

// genericFields may stand in every command.
var genericFields = []string{
	"$db", "$clusterTime", "$readPreference", "lsid", "txnNumber", "autocommit", "startTransaction",
	"readConcern", "writeConcern", "maxTimeMS", "comment", "apiVersion", "apiStrict", "apiDeprecationErrors",
}

// handle runs a command and makes its reply; the error is one of encoding.
func (m *Mongo) handle(ctx context.Context, connID int32, msg *wire.Message) (bson.Raw, error) {
	r := &request{server: m, connID: connID, body: msg.Body, seqs: msg.Sequences, db: msg.DB, legacy: msg.Legacy}
	result, err := r.execute(ctx)
	if err != nil {
		return r.errorReply(err)
	}
	return r.reply(result)
}

func (r *request) execute(ctx context.Context) (result bson.D, err error) {
	first, err := r.body.IndexErr(0)
	if err != nil {
		return nil, store.Errorf(store.CodeCommandNotFound, "no such command: ''")
	}
	r.name = first.Key()
	defer r.server.protect(r.name, &err)
	if alias, ok := aliases[r.name]; ok {
		r.name = alias
	}
	if !r.legacy {
		db, ok := r.body.Lookup("$db").StringValueOK()
		if !ok {
			return nil, store.Errorf(40571, "OP_MSG requests require a $db argument")
		}
		r.db = db
	}
	s, ok := commands[r.name]
	if !ok {
		return nil, store.Errorf(store.CodeCommandNotFound, "no such command: '%s'", r.name)
	}
	if err := r.checkFields(s); err != nil {
		return nil, err
	}
	return r.inSession(ctx, s)
}

func (r *request) checkFields(s spec) error {
	if s.fields == nil {
		return nil
	}
	elements, err := r.body.Elements()
	if err != nil {
		return store.Errorf(store.CodeFailedToParse, "decode command: %s", err)
	}
	for _, e := range elements {
		if e.Key() == r.name || contains(genericFields, e.Key()) || contains(s.fields, e.Key()) {
			continue
		}
		if r.name == "find" {
			return store.Errorf(store.CodeFailedToParse, "Failed to parse: %s. Unrecognized field '%s'.", store.ShellDocument(r.body), e.Key())
		}
		return store.Errorf(40415, "BSON field '%s.%s' is an unknown field.", r.name, e.Key())
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, item := range list {
		if item == s {
			return true
		}
	}
	return false
}

// reply ends a good reply the way a server does.
func (r *request) reply(result bson.D) (bson.Raw, error) {
	now := timestamp(r.server.engine.OperationTime())
	result = append(result,
		bson.E{Key: "ok", Value: 1.0},
		bson.E{Key: "$clusterTime", Value: clusterTime(now)},
		bson.E{Key: "operationTime", Value: now},
	)
	return bson.Marshal(result)
}

func (r *request) errorReply(err error) (bson.Raw, error) {
	var coded *store.Error
	if !errors.As(err, &coded) {
		r.server.log.Error("command", "command", r.name, "error", err)
		coded = store.Errorf(store.CodeInternalError, "%s", err)
	}
	now := timestamp(r.server.engine.OperationTime())
	d := bson.D{}
	if len(coded.Labels) > 0 {
		d = append(d, bson.E{Key: "errorLabels", Value: coded.Labels})
	}
	d = append(d,
		bson.E{Key: "operationTime", Value: now},
		bson.E{Key: "ok", Value: 0.0},
		bson.E{Key: "errmsg", Value: coded.Message},
		bson.E{Key: "code", Value: coded.Code},
		bson.E{Key: "codeName", Value: store.CodeName(coded.Code)},
	)
	if coded.KeyPattern != nil {
		d = append(d, bson.E{Key: "keyPattern", Value: coded.KeyPattern}, bson.E{Key: "keyValue", Value: coded.KeyValue})
	}
	d = append(d, bson.E{Key: "$clusterTime", Value: clusterTime(now)})
	return bson.Marshal(d)
}

func timestamp(t store.Timestamp) bson.Timestamp { return bson.Timestamp{T: t.T, I: t.I} }

func clusterTime(now bson.Timestamp) bson.D {
	return bson.D{
		{Key: "clusterTime", Value: now},
		{Key: "signature", Value: bson.D{
			{Key: "hash", Value: bson.Binary{Data: make([]byte, 20)}},
			{Key: "keyId", Value: int64(0)},
		}},
	}
}

// namespace reads the collection that the command is about.
func (r *request) namespace() (store.Namespace, error) {
	name, ok := r.body.Lookup(r.name).StringValueOK()
	if !ok {
		return store.Namespace{}, store.Errorf(store.CodeFailedToParse,
			"Failed to parse: %s: %s. '%s' field must be of BSON type string.", r.name, store.ShellValue(r.body.Lookup(r.name)), r.name)
	}
	ns := store.Namespace{DB: r.db, Coll: name}
	return ns, store.CheckNamespace(ns)
}

// documents reads a list that comes as a sequence of the message, or as an array
// in the body.
func (r *request) documents(name string) ([]bson.Raw, error) {
	if docs, ok := r.seqs[name]; ok {
		return docs, nil
	}
	return documentList(r.body, name)
}

func documentList(body bson.Raw, name string) ([]bson.Raw, error) {
	v, err := body.LookupErr(name)
	if err != nil {
		return nil, store.Errorf(40414, "BSON field '%s' is missing but a required field", name)
	}
	array, ok := v.ArrayOK()
	if !ok {
		return nil, store.Errorf(store.CodeTypeMismatch, "BSON field '%s' is the wrong type '%s', expected type 'array'", name, v.Type)
	}
	values, err := array.Values()
	if err != nil {
		return nil, store.Errorf(store.CodeFailedToParse, "decode %s: %s", name, err)
	}
	docs := make([]bson.Raw, len(values))
	for i, item := range values {
		if docs[i], ok = item.DocumentOK(); !ok {
			return nil, store.Errorf(store.CodeTypeMismatch, "BSON field '%s.%d' is the wrong type '%s', expected type 'object'", name, i, item.Type)
		}
	}
	return docs, nil
}

// document reads an optional document.
func document(body bson.Raw, name string) (bson.Raw, error) {
	v, err := body.LookupErr(name)
	if err != nil || v.Type == bson.TypeNull {
		return nil, nil
	}
	d, ok := v.DocumentOK()
	if !ok {
		return nil, store.Errorf(store.CodeTypeMismatch, "BSON field '%s' is the wrong type '%s', expected type 'object'", name, v.Type)
	}
	return d, nil
}

// integer reads an optional number.
func integer(body bson.Raw, name string, fallback int64) (int64, error) {
	v, err := body.LookupErr(name)
	if err != nil || v.Type == bson.TypeNull {
		return fallback, nil
	}
	n, ok := v.AsInt64OK()
	if !ok {
		return 0, store.Errorf(store.CodeTypeMismatch, "BSON field '%s' is the wrong type '%s', expected a number", name, v.Type)
	}
	return n, nil
}

// boolean reads an optional flag; numbers count as flags too.
func boolean(body bson.Raw, name string, fallback bool) bool {
	v, err := body.LookupErr(name)
	if err != nil {
		return fallback
	}
	if b, ok := v.BooleanOK(); ok {
		return b
	}
	if n, ok := v.AsInt64OK(); ok {
		return n != 0
	}
	return fallback
}

// source is what a read sees: the transaction's view, or the state of now.
func (r *request) source() store.Source {
	if r.inTxn {
		return r.session.txn
	}
	return r.server.engine.Snapshot()
}

// write runs fn in the transaction, or as a write of its own, for which
// maxTimeMS bounds the wait.
func (r *request) write(ctx context.Context, fn func(*store.Txn) error) error {
	if r.inTxn {
		return fn(r.session.txn)
	}
	ms, err := integer(r.body, "maxTimeMS", 0)
	if err != nil {
		return err
	}
	if ms > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
		defer cancel()
	}
	return r.server.engine.Write(ctx, fn)
}
