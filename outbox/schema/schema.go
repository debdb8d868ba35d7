// Package schema holds the JSON Schema of the outbox document, for publishers in other languages and for tools.
//
// It is draft 2020-12. JSON has no dates: where the schema says date-time the document has a BSON date, as each
// field's x-bson says. The schema counts characters where the outbox counts bytes, so that it is the wider of the two
// for texts beyond ASCII; the outbox itself decides. A test validates against it what Publish writes.
package schema

import _ "embed"

// ID is the schema's $id.
const ID = "https://github.com/lastmile-gateway/lastmile/outbox/schema/event.schema.json"

// Event is the schema, as JSON.
//
//go:embed event.schema.json
var Event []byte
