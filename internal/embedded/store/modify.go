package store

import (
	"bytes"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// UpdateResult tells what an update did.
type UpdateResult struct {
	Matched, Modified int
	Upserted          bson.Raw // the document that was inserted
	Before, After     bson.Raw // of the last one that matched
}

// Update changes the first document that matches, or all of them.
func (t *Txn) Update(ns Namespace, q Query, u *Update, multi, upsert bool) (UpdateResult, error) {
	var res UpdateResult
	if !multi {
		q.Limit = 1
	}
	records, err := find(t.collection(ns), q)
	if err != nil {
		return res, err
	}
	if len(records) == 0 && upsert {
		return t.upsert(ns, q, u)
	}
	for _, r := range records {
		after, err := t.updateOne(ns, q, u, r, &res)
		if err != nil {
			return res, err
		}
		res.Matched++
		res.Before, res.After = r.raw, after
	}
	return res, nil
}

func (t *Txn) updateOne(ns Namespace, q Query, u *Update, r *record, res *UpdateResult) (bson.Raw, error) {
	raw, desc, err := u.apply(r.raw, q.Filter)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(raw, r.raw) {
		return raw, nil
	}
	e := &Entry{Op: OpUpdate, NS: ns, ID: raw.Lookup("_id"), Desc: desc}
	if u.IsReplacement() {
		e.Op, e.Doc = OpReplace, raw
	}
	if err := t.change(ns, r, raw, e); err != nil {
		return nil, err
	}
	res.Modified++
	return raw, nil
}

func (t *Txn) upsert(ns Namespace, q Query, u *Update) (UpdateResult, error) {
	doc, err := u.upsert(q.Filter)
	if err != nil {
		return UpdateResult{}, err
	}
	raw, err := t.Insert(ns, doc)
	return UpdateResult{Upserted: raw, After: raw}, err
}

// Delete removes the documents that a query finds, and returns them.
func (t *Txn) Delete(ns Namespace, q Query) ([]bson.Raw, error) {
	records, err := find(t.collection(ns), q)
	if err != nil {
		return nil, err
	}
	gone := make([]bson.Raw, 0, len(records))
	for _, r := range records {
		e := &Entry{Op: OpDelete, NS: ns, ID: r.raw.Lookup("_id")}
		if err := t.change(ns, r, nil, e); err != nil {
			return gone, err
		}
		gone = append(gone, r.raw)
	}
	return gone, nil
}
