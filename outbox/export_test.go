package outbox

// What the codec makes of a document is seen by nobody before it is stored; its tests see it here.
var (
	Encode        = encode
	Decode        = decode
	DecodeContent = decodeContent
	Significant   = significant
)

func FromJSON(data []byte) ([]byte, error) { return appendJSONObject(nil, data) }

func ToJSON(doc []byte) ([]byte, error) { return appendObject(nil, doc, 1) }
