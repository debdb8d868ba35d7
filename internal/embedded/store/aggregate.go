package store

import "go.mongodb.org/mongo-driver/v2/bson"

// Aggregate runs a pipeline of $match, $sort, $skip, $limit, $project, $count and
// $group. Any other stage is an error.
func Aggregate(src Source, ns Namespace, stages []bson.Raw) ([]bson.Raw, error) {
	q, rest, err := leadingQuery(stages)
	if err != nil {
		return nil, err
	}
	docs, err := Find(src, ns, q)
	for _, s := range rest {
		if err != nil {
			return nil, err
		}
		docs, err = runStage(s, docs)
	}
	return docs, err
}

// leadingQuery takes the stages in front that a query can do, with its indexes.
func leadingQuery(stages []bson.Raw) (Query, []bson.Raw, error) {
	q := Query{}
	var err error
	for rank := 0; len(stages) > 0; stages = stages[1:] {
		name, v, err := stage(stages[0])
		if err != nil {
			return q, nil, err
		}
		place := map[string]int{"$match": 1, "$sort": 2, "$skip": 3, "$limit": 4}[name]
		if place <= rank {
			break
		}
		n, isNumber := v.AsInt64OK()
		d, isDocument := v.DocumentOK()
		if (place <= 2 && !isDocument) || (place > 2 && (!isNumber || n < 0)) || (place == 4 && n == 0) {
			return q, nil, Errorf(CodeBadValue, "%s: bad argument %s", name, v)
		}
		switch rank = place; name {
		case "$match":
			if q.Filter, err = CompileFilter(d); err != nil {
				return q, nil, err
			}
		case "$sort":
			q.Sort = d
		case "$skip":
			q.Skip = int(n)
		case "$limit":
			q.Limit = int(n)
		}
	}
	if q.Filter == nil {
		q.Filter, err = CompileFilter(nil)
	}
	return q, stages, err
}

func stage(raw bson.Raw) (string, bson.RawValue, error) {
	elements, err := raw.Elements()
	if err != nil || len(elements) != 1 {
		return "", bson.RawValue{}, Errorf(40323, "A pipeline stage specification object must contain exactly one field.")
	}
	return elements[0].Key(), elements[0].Value(), nil
}

func runStage(raw bson.Raw, docs []bson.Raw) ([]bson.Raw, error) {
	name, v, err := stage(raw)
	if err != nil {
		return nil, err
	}
	n, _ := v.AsInt64OK()
	d, _ := v.DocumentOK()
	switch name {
	case "$match":
		return matchAll(docs, d)
	case "$sort":
		return sortAll(docs, d)
	case "$skip":
		return docs[min(max(0, int(n)), len(docs)):], nil
	case "$limit":
		return docs[:min(max(0, int(n)), len(docs))], nil
	case "$project":
		return projectAll(docs, d)
	case "$count":
		return countAll(docs, v)
	case "$group":
		return group(docs, d)
	}
	return nil, Errorf(CodeNotImplemented, "pipeline stage %s is not supported here", name)
}

func matchAll(docs []bson.Raw, d bson.Raw) ([]bson.Raw, error) {
	f, err := CompileFilter(d)
	if err != nil {
		return nil, err
	}
	var out []bson.Raw
	for _, doc := range docs {
		ok, err := f.Match(doc)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, doc)
		}
	}
	return out, nil
}

func sortAll(docs []bson.Raw, d bson.Raw) ([]bson.Raw, error) {
	fields, err := parseSort(d)
	if err != nil {
		return nil, err
	}
	s := sorter{fields: fields}
	for _, doc := range docs {
		s.add(doc, nil)
	}
	out := make([]bson.Raw, 0, len(docs))
	for _, item := range s.sorted() {
		out = append(out, item.raw)
	}
	return out, nil
}

func projectAll(docs []bson.Raw, d bson.Raw) ([]bson.Raw, error) {
	p, err := CompileProjection(d)
	if err != nil {
		return nil, err
	}
	out := make([]bson.Raw, len(docs))
	for i, doc := range docs {
		if out[i], err = p.Apply(doc); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func countAll(docs []bson.Raw, v bson.RawValue) ([]bson.Raw, error) {
	name, ok := v.StringValueOK()
	if !ok || name == "" {
		return nil, Errorf(40156, "the count field must be a non-empty string")
	}
	if len(docs) == 0 {
		return nil, nil
	}
	raw, err := bson.Marshal(bson.D{{Key: name, Value: int32(len(docs))}})
	return []bson.Raw{raw}, err
}
