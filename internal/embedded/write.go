package embedded

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/internal/embedded/store"
)

var writeCommands = map[string]spec{
	"insert": {run: insert, txn: true, write: true, fields: []string{"documents", "ordered", "bypassDocumentValidation"}},
	"update": {run: update, txn: true, write: true, fields: []string{"updates", "ordered", "bypassDocumentValidation", "let"}},
	"delete": {run: remove, txn: true, write: true, fields: []string{"deletes", "ordered", "let"}},
	"findAndModify": {run: findAndModify, txn: true, write: true, fields: []string{
		"query", "sort", "remove", "update", "new", "fields", "upsert", "bypassDocumentValidation", "arrayFilters", "hint", "collation", "let",
	}},
}

// batch runs the statements of a write command, and collects the errors of
// single ones.
type batch struct {
	ordered bool
	errors  []bson.D
}

// run gives each statement to fn. An error that is not about one statement ends
// the command.
func (b *batch) run(n int, fn func(i int) error) error {
	b.errors = nil
	for i := range n {
		err := fn(i)
		if err == nil {
			continue
		}
		var coded *store.Error
		if !errors.As(err, &coded) || coded.Code == store.CodeWriteConflict ||
			coded.Code == store.CodeNoSuchTransaction || coded.Code == store.CodeNotImplemented {
			return err
		}
		b.errors = append(b.errors, writeError(i, coded))
		if b.ordered {
			return nil
		}
	}
	return nil
}

func writeError(i int, e *store.Error) bson.D {
	d := bson.D{{Key: "index", Value: int32(i)}, {Key: "code", Value: e.Code}}
	if e.KeyPattern != nil {
		d = append(d, bson.E{Key: "keyPattern", Value: e.KeyPattern}, bson.E{Key: "keyValue", Value: e.KeyValue})
	}
	return append(d, bson.E{Key: "errmsg", Value: e.Message})
}

// writeBatch is what insert, update and delete have in common.
func (r *request) writeBatch(ctx context.Context, list string, fn func(t *store.Txn, ns store.Namespace, i int, item bson.Raw) error, reset func()) (*batch, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	if err := refuse(r.body, "let"); err != nil {
		return nil, err
	}
	items, err := r.documents(list)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 || len(items) > maxWriteBatch {
		return nil, store.Errorf(store.CodeInvalidLength, "Write batch sizes must be between 1 and %d. Got %d operations.", maxWriteBatch, len(items))
	}
	b := &batch{ordered: boolean(r.body, "ordered", true) || r.inTxn}
	err = r.write(ctx, func(t *store.Txn) error {
		reset() // it may be run again
		return b.run(len(items), func(i int) error { return fn(t, ns, i, items[i]) })
	})
	return b, err
}

func (r *request) writeReply(head bson.D, b *batch) bson.D {
	if len(b.errors) > 0 {
		head = append(head, bson.E{Key: "writeErrors", Value: b.errors})
	}
	return append(head,
		bson.E{Key: "opTime", Value: opTime(timestamp(r.server.engine.OperationTime()))},
		bson.E{Key: "electionId", Value: r.server.electionID},
	)
}

func insert(ctx context.Context, r *request) (bson.D, error) {
	n := 0
	b, err := r.writeBatch(ctx, "documents", func(t *store.Txn, ns store.Namespace, _ int, doc bson.Raw) error {
		_, err := t.Insert(ns, doc)
		if err == nil {
			n++
		}
		return err
	}, func() { n = 0 })
	if err != nil {
		return nil, err
	}
	return r.writeReply(bson.D{{Key: "n", Value: int32(n)}}, b), nil
}

func update(ctx context.Context, r *request) (bson.D, error) {
	var n, modified int
	var upserted []bson.D
	b, err := r.writeBatch(ctx, "updates", func(t *store.Txn, ns store.Namespace, i int, item bson.Raw) error {
		res, err := updateStatement(t, ns, item)
		n, modified = n+res.Matched, modified+res.Modified
		if res.Upserted != nil {
			n++
			upserted = append(upserted, bson.D{{Key: "index", Value: int32(i)}, {Key: "_id", Value: res.Upserted.Lookup("_id")}})
		}
		return err
	}, func() { n, modified, upserted = 0, 0, nil })
	if err != nil {
		return nil, err
	}
	head := bson.D{{Key: "n", Value: int32(n)}, {Key: "nModified", Value: int32(modified)}}
	if len(upserted) > 0 {
		head = append(head, bson.E{Key: "upserted", Value: upserted})
	}
	return r.writeReply(head, b), nil
}

func updateStatement(t *store.Txn, ns store.Namespace, item bson.Raw) (store.UpdateResult, error) {
	if err := refuse(item, "collation"); err != nil {
		return store.UpdateResult{}, err
	}
	q, err := query(item, "q", "sort")
	if err != nil {
		return store.UpdateResult{}, err
	}
	u, err := updateOf(item, "u")
	if err != nil {
		return store.UpdateResult{}, err
	}
	multi := boolean(item, "multi", false)
	if multi && u.IsReplacement() {
		return store.UpdateResult{}, store.Errorf(store.CodeFailedToParse, "multi update is not supported for replacement-style update")
	}
	return t.Update(ns, q, u, multi, boolean(item, "upsert", false))
}

func updateOf(item bson.Raw, name string) (*store.Update, error) {
	v, err := item.LookupErr(name)
	if err != nil {
		return nil, store.Errorf(40414, "BSON field '%s' is missing but a required field", name)
	}
	var filters []bson.Raw
	if _, err := item.LookupErr("arrayFilters"); err == nil {
		if filters, err = documentList(item, "arrayFilters"); err != nil {
			return nil, err
		}
	}
	return store.CompileUpdate(v, filters)
}

// refuse names the options that change what a command means, and are not
// supported.
func refuse(item bson.Raw, names ...string) error {
	for _, name := range names {
		if v, err := item.LookupErr(name); err == nil && v.Type != bson.TypeNull {
			return store.Errorf(store.CodeNotImplemented, "%s is not supported here", name)
		}
	}
	return nil
}

// query reads a filter and a sort.
func query(item bson.Raw, filterName, sortName string) (store.Query, error) {
	raw, err := document(item, filterName)
	if err != nil {
		return store.Query{}, err
	}
	f, err := store.CompileFilter(raw)
	if err != nil {
		return store.Query{}, err
	}
	sort, err := document(item, sortName)
	return store.Query{Filter: f, Sort: sort}, err
}

func remove(ctx context.Context, r *request) (bson.D, error) {
	n := 0
	b, err := r.writeBatch(ctx, "deletes", func(t *store.Txn, ns store.Namespace, _ int, item bson.Raw) error {
		if err := refuse(item, "collation"); err != nil {
			return err
		}
		q, err := query(item, "q", "sort")
		if err != nil {
			return err
		}
		limit, err := integer(item, "limit", -1)
		if err != nil {
			return err
		}
		if limit != 0 && limit != 1 {
			return store.Errorf(store.CodeFailedToParse, "The limit field in delete objects must be 0 or 1. Got %d", limit)
		}
		q.Limit = int(limit)
		gone, err := t.Delete(ns, q)
		n += len(gone)
		return err
	}, func() { n = 0 })
	if err != nil {
		return nil, err
	}
	return r.writeReply(bson.D{{Key: "n", Value: int32(n)}}, b), nil
}

func findAndModify(ctx context.Context, r *request) (bson.D, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	if err := refuse(r.body, "collation", "let"); err != nil {
		return nil, err
	}
	q, err := query(r.body, "query", "sort")
	if err != nil {
		return nil, err
	}
	q.Limit = 1
	var last, value any
	work := func(t *store.Txn) error { last, value, err = r.modifyOne(t, ns, q); return err }
	if err := r.write(ctx, work); err != nil {
		return nil, err
	}
	if doc, ok := value.(bson.Raw); ok {
		if value, err = r.project(doc); err != nil {
			return nil, err
		}
	}
	return bson.D{{Key: "lastErrorObject", Value: last}, {Key: "value", Value: value}}, nil
}

func (r *request) project(doc bson.Raw) (bson.Raw, error) {
	fields, err := document(r.body, "fields")
	if err != nil {
		return nil, err
	}
	p, err := store.CompileProjection(fields)
	if err != nil {
		return nil, err
	}
	return p.Apply(doc)
}

func (r *request) modifyOne(t *store.Txn, ns store.Namespace, q store.Query) (last, value any, err error) {
	if boolean(r.body, "remove", false) {
		gone, err := t.Delete(ns, q)
		if err != nil || len(gone) == 0 {
			return bson.D{{Key: "n", Value: int32(0)}}, nil, err
		}
		return bson.D{{Key: "n", Value: int32(1)}}, gone[0], nil
	}
	u, err := updateOf(r.body, "update")
	if err != nil {
		return nil, nil, err
	}
	res, err := t.Update(ns, q, u, false, boolean(r.body, "upsert", false))
	if err != nil {
		return nil, nil, err
	}
	n := int32(res.Matched)
	if res.Upserted != nil {
		n = 1
	}
	d := bson.D{{Key: "n", Value: n}, {Key: "updatedExisting", Value: res.Matched > 0}}
	if res.Upserted != nil {
		d = append(d, bson.E{Key: "upserted", Value: res.Upserted.Lookup("_id")})
	}
	doc := res.Before
	if boolean(r.body, "new", false) {
		doc = res.After
	}
	if doc == nil {
		return d, nil, nil
	}
	return d, doc, nil
}
