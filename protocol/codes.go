package protocol

// CloseCode is a WebSocket close code that the server uses.
type CloseCode int

// ErrorCode is the code of an error frame.
type ErrorCode string

// closeInfo is what the table says of a close code.
type closeInfo struct {
	reason    string
	reconnect bool
}

// Reason is the fixed text that goes with the code on the wire, at most 123 bytes; "" for a code that is not in the table.
func (c CloseCode) Reason() string { return closeCodes[c].reason }

// Reconnect says whether a client that was closed with c connects again by itself. Codes that are not in
// the table follow their range: 4500 to 4999 don't.
func (c CloseCode) Reconnect() bool {
	if info, ok := closeCodes[c]; ok {
		return info.reconnect
	}
	return c < 4500 || c > 4999
}
