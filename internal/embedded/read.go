package embedded

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/internal/embedded/store"
)

var readCommands = map[string]spec{
	"find": {run: find, txn: true, fields: []string{
		"filter", "sort", "projection", "hint", "skip", "limit", "batchSize", "singleBatch", "returnKey", "showRecordId",
		"max", "min", "tailable", "oplogReplay", "noCursorTimeout", "awaitData", "allowPartialResults", "collation",
		"allowDiskUse", "let",
	}},
	"aggregate": {run: aggregate, txn: true, fields: []string{
		"pipeline", "cursor", "explain", "allowDiskUse", "bypassDocumentValidation", "collation", "hint", "let",
	}},
	"count":    {run: count, fields: []string{"query", "limit", "skip", "hint", "collation"}},
	"distinct": {run: distinct, txn: true, fields: []string{"key", "query", "collation", "hint"}},
}

func find(_ context.Context, r *request) (bson.D, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	if err := refuse(r.body, "collation", "max", "min", "let"); err != nil {
		return nil, err
	}
	for _, flag := range []string{"tailable", "awaitData", "returnKey", "showRecordId", "oplogReplay"} {
		if boolean(r.body, flag, false) {
			return nil, store.Errorf(store.CodeNotImplemented, "%s is not supported here", flag)
		}
	}
	q, p, err := r.findQuery()
	if err != nil {
		return nil, err
	}
	docs, err := store.Find(r.source(), ns, q)
	if err != nil {
		return nil, err
	}
	size, err := integer(r.body, "batchSize", firstBatchSize)
	if err != nil {
		return nil, err
	}
	return r.openCursor(ns, &documents{docs: docs, projection: p}, size, boolean(r.body, "singleBatch", false))
}

func (r *request) findQuery() (store.Query, *store.Projection, error) {
	q, err := query(r.body, "filter", "sort")
	if err != nil {
		return q, nil, err
	}
	skip, err := integer(r.body, "skip", 0)
	if err != nil {
		return q, nil, err
	}
	limit, err := integer(r.body, "limit", 0)
	if err != nil {
		return q, nil, err
	}
	if skip < 0 || limit < 0 {
		return q, nil, store.Errorf(51024, "skip and limit must not be negative")
	}
	q.Skip, q.Limit = int(skip), int(limit)
	fields, err := document(r.body, "projection")
	if err != nil {
		return q, nil, err
	}
	p, err := store.CompileProjection(fields)
	return q, p, err
}

func count(_ context.Context, r *request) (bson.D, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	if err := refuse(r.body, "collation"); err != nil {
		return nil, err
	}
	filter, err := document(r.body, "query")
	if err != nil {
		return nil, err
	}
	skip, err := integer(r.body, "skip", 0)
	if err != nil {
		return nil, err
	}
	limit, err := integer(r.body, "limit", 0)
	if err != nil {
		return nil, err
	}
	n := store.Count(r.source(), ns)
	if len(filter) > 5 {
		q, err := query(r.body, "query", "")
		if err != nil {
			return nil, err
		}
		docs, err := store.Find(r.source(), ns, q)
		if err != nil {
			return nil, err
		}
		n = len(docs)
	}
	n = max(0, n-int(skip))
	if limit != 0 {
		n = min(n, int(max(limit, -limit)))
	}
	return bson.D{{Key: "n", Value: int32(n)}}, nil
}

func distinct(_ context.Context, r *request) (bson.D, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	if err := refuse(r.body, "collation"); err != nil {
		return nil, err
	}
	key, ok := r.body.Lookup("key").StringValueOK()
	if !ok {
		return nil, store.Errorf(store.CodeTypeMismatch, "BSON field 'distinct.key' must be of type string")
	}
	q, err := query(r.body, "query", "")
	if err != nil {
		return nil, err
	}
	docs, err := store.Find(r.source(), ns, q)
	if err != nil {
		return nil, err
	}
	return bson.D{{Key: "values", Value: store.Distinct(docs, key)}}, nil
}

func aggregate(ctx context.Context, r *request) (bson.D, error) {
	stages, err := documentList(r.body, "pipeline")
	if err != nil {
		return nil, err
	}
	if err := refuse(r.body, "collation", "let", "explain"); err != nil {
		return nil, err
	}
	if len(stages) > 0 {
		if _, err := stages[0].LookupErr("$changeStream"); err == nil {
			return r.openStream(ctx, stages)
		}
	}
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	options, err := document(r.body, "cursor")
	if err != nil {
		return nil, err
	}
	if options == nil {
		return nil, store.Errorf(store.CodeFailedToParse, "The 'cursor' option is required, except for aggregate with the explain argument")
	}
	size, err := integer(options, "batchSize", firstBatchSize)
	if err != nil {
		return nil, err
	}
	docs, err := store.Aggregate(r.source(), ns, stages)
	if err != nil {
		return nil, err
	}
	return r.openCursor(ns, &documents{docs: docs}, size, false)
}
