package embedded

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/internal/embedded/store"
)

var ddlCommands = map[string]spec{
	"create":           {run: create, fields: []string{}},
	"drop":             {run: drop, fields: []string{}},
	"dropDatabase":     {run: dropDatabase, fields: []string{}},
	"renameCollection": {run: renameCollection, fields: []string{"to", "dropTarget"}},
	"createIndexes":    {run: createIndexes, fields: []string{"indexes", "commitQuorum"}},
	"dropIndexes":      {run: dropIndexes, fields: []string{"index"}},
	"listIndexes":      {run: listIndexes, fields: []string{"cursor"}},
	"listCollections":  {run: listCollections, fields: []string{"filter", "nameOnly", "authorizedCollections", "cursor"}},
	"listDatabases":    {run: listDatabases, fields: []string{"filter", "nameOnly", "authorizedDatabases"}},
}

func create(_ context.Context, r *request) (bson.D, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	return nil, r.server.engine.Create(ns)
}

func drop(_ context.Context, r *request) (bson.D, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	n, err := r.server.engine.Drop(ns)
	if err != nil {
		return nil, err
	}
	return bson.D{{Key: "nIndexesWas", Value: int32(n)}, {Key: "ns", Value: ns.String()}}, nil
}

func dropDatabase(_ context.Context, r *request) (bson.D, error) {
	r.server.engine.DropDatabase(r.db)
	return bson.D{{Key: "dropped", Value: r.db}}, nil
}

func renameCollection(_ context.Context, r *request) (bson.D, error) {
	from, err := splitNamespace(r.body, "renameCollection")
	if err != nil {
		return nil, err
	}
	to, err := splitNamespace(r.body, "to")
	if err != nil {
		return nil, err
	}
	return nil, r.server.engine.Rename(from, to, boolean(r.body, "dropTarget", false))
}

func splitNamespace(body bson.Raw, name string) (store.Namespace, error) {
	s, ok := body.Lookup(name).StringValueOK()
	for i := range s {
		if s[i] == '.' && i > 0 && i < len(s)-1 {
			return store.Namespace{DB: s[:i], Coll: s[i+1:]}, nil
		}
	}
	if !ok {
		return store.Namespace{}, store.Errorf(store.CodeTypeMismatch, "BSON field '%s' must be of type string", name)
	}
	return store.Namespace{}, store.Errorf(store.CodeInvalidNamespace, "Invalid namespace specified '%s'", s)
}

func createIndexes(_ context.Context, r *request) (bson.D, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	list, err := documentList(r.body, "indexes")
	if err != nil {
		return nil, err
	}
	specs := make([]store.IndexSpec, len(list))
	for i, item := range list {
		if specs[i], err = indexSpec(item); err != nil {
			return nil, err
		}
	}
	res, err := r.server.engine.CreateIndexes(ns, specs)
	if err != nil {
		return nil, err
	}
	before := res.Before
	d := bson.D{{Key: "numIndexesBefore", Value: int32(before)}, {Key: "numIndexesAfter", Value: int32(res.After)}}
	if res.After == before {
		return append(d, bson.E{Key: "note", Value: "all indexes already exist"}), nil
	}
	return append(d,
		bson.E{Key: "createdCollectionAutomatically", Value: res.Created},
		bson.E{Key: "commitQuorum", Value: "votingMembers"},
	), nil
}

// indexSpec reads one index; an option that is not listed is refused.
func indexSpec(item bson.Raw) (store.IndexSpec, error) {
	var s store.IndexSpec
	elements, err := item.Elements()
	if err != nil {
		return s, store.Errorf(store.CodeFailedToParse, "decode index: %s", err)
	}
	for _, e := range elements {
		v := e.Value()
		ok := true
		switch e.Key() {
		case "key":
			s.Key, ok = v.DocumentOK()
		case "name":
			s.Name, ok = v.StringValueOK()
		case "unique":
			s.Unique = boolean(item, "unique", false)
		case "sparse":
			s.Sparse = boolean(item, "sparse", false)
		case "partialFilterExpression":
			s.Partial, ok = v.DocumentOK()
		case "expireAfterSeconds":
			var n int64
			n, ok = v.AsInt64OK()
			d := time.Duration(n) * time.Second
			s.Expire = &d
		case "v", "background", "hidden":
		default:
			return s, store.Errorf(store.CodeCannotCreateIndex, "index option %s is not supported here", e.Key())
		}
		if !ok {
			return s, store.Errorf(store.CodeTypeMismatch, "index option %s is of the wrong type %s", e.Key(), v.Type)
		}
	}
	if s.Name == "" || s.Key == nil {
		return s, store.Errorf(store.CodeFailedToParse, "an index needs a key and a name")
	}
	return s, nil
}

func dropIndexes(_ context.Context, r *request) (bson.D, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	v := r.body.Lookup("index")
	var match func(store.IndexSpec) bool
	name, isName := v.StringValueOK()
	key, isKey := v.DocumentOK()
	switch {
	case isName && name == "*":
		match = func(store.IndexSpec) bool { return true }
	case isName:
		match = func(s store.IndexSpec) bool { return s.Name == name }
	case isKey:
		match = func(s store.IndexSpec) bool { return store.ShellDocument(s.Key) == store.ShellDocument(key) }
	default:
		return nil, store.Errorf(store.CodeTypeMismatch, "dropIndexes wants one name, one key or '*' here")
	}
	before, dropped, err := r.server.engine.DropIndexes(ns, match)
	if err != nil {
		return nil, err
	}
	if dropped == 0 && name != "*" {
		return nil, store.Errorf(store.CodeIndexNotFound, "index not found with name [%s]", v)
	}
	return bson.D{{Key: "nIndexesWas", Value: int32(before)}}, nil
}

func listIndexes(_ context.Context, r *request) (bson.D, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	specs, err := r.server.engine.Snapshot().Indexes(ns)
	if err != nil {
		return nil, err
	}
	docs := make([]bson.Raw, len(specs))
	for i, s := range specs {
		if docs[i], err = bson.Marshal(indexDocument(s)); err != nil {
			return nil, err
		}
	}
	return r.openCursor(ns, &documents{docs: docs}, int64(len(docs)), true)
}

func indexDocument(s store.IndexSpec) bson.D {
	d := bson.D{{Key: "v", Value: int32(2)}}
	if s.Unique && s.Name != "_id_" {
		d = append(d, bson.E{Key: "unique", Value: true})
	}
	d = append(d, bson.E{Key: "key", Value: s.Key}, bson.E{Key: "name", Value: s.Name})
	if s.Sparse {
		d = append(d, bson.E{Key: "sparse", Value: true})
	}
	if s.Partial != nil {
		d = append(d, bson.E{Key: "partialFilterExpression", Value: s.Partial})
	}
	if s.Expire != nil {
		d = append(d, bson.E{Key: "expireAfterSeconds", Value: int32(*s.Expire / time.Second)})
	}
	return d
}

func listCollections(_ context.Context, r *request) (bson.D, error) {
	var list []bson.D
	nameOnly := boolean(r.body, "nameOnly", false)
	for _, c := range r.server.engine.Snapshot().Collections(r.db) {
		d := bson.D{{Key: "name", Value: c.NS.Coll}, {Key: "type", Value: "collection"}}
		if !nameOnly {
			d = append(d,
				bson.E{Key: "options", Value: bson.D{}},
				bson.E{Key: "info", Value: bson.D{
					{Key: "readOnly", Value: false},
					{Key: "uuid", Value: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: c.UUID[:]}},
				}},
				bson.E{Key: "idIndex", Value: bson.D{
					{Key: "v", Value: int32(2)}, {Key: "key", Value: bson.D{{Key: "_id", Value: int32(1)}}}, {Key: "name", Value: "_id_"},
				}},
			)
		}
		list = append(list, d)
	}
	docs, err := r.filtered(list)
	if err != nil {
		return nil, err
	}
	return cursorReply("firstBatch", 0, r.db+".$cmd.listCollections", feedBatch{docs: docs}), nil
}

func listDatabases(_ context.Context, r *request) (bson.D, error) {
	var list []bson.D
	seen := map[string]bool{}
	for _, c := range r.server.engine.Snapshot().Collections("") {
		if seen[c.NS.DB] {
			continue
		}
		seen[c.NS.DB] = true
		d := bson.D{{Key: "name", Value: c.NS.DB}}
		if !boolean(r.body, "nameOnly", false) {
			d = append(d, bson.E{Key: "sizeOnDisk", Value: int64(0)}, bson.E{Key: "empty", Value: false})
		}
		list = append(list, d)
	}
	docs, err := r.filtered(list)
	if err != nil {
		return nil, err
	}
	return bson.D{{Key: "databases", Value: docs}, {Key: "totalSize", Value: int64(0)}}, nil
}

// filtered keeps what the command's filter matches.
func (r *request) filtered(list []bson.D) ([]bson.Raw, error) {
	q, err := query(r.body, "filter", "")
	if err != nil {
		return nil, err
	}
	docs := []bson.Raw{}
	for _, d := range list {
		raw, err := bson.Marshal(d)
		if err != nil {
			return nil, err
		}
		ok, err := q.Filter.Match(raw)
		if err != nil {
			return nil, err
		}
		if ok {
			docs = append(docs, raw)
		}
	}
	return docs, nil
}
