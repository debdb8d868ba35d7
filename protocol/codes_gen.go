// Code generated from the table of package protocol; DO NOT EDIT.

package protocol

// WebSocket close codes. 4000 to 4499: reconnect. 4500 to 4999: don't.
const (
	// CloseBye: Answers the client's own close. A client that did not ask for it comes back: something between it and the server did.
	CloseBye CloseCode = 1000
	// CloseGoingAway: The server leaves without a drain.
	CloseGoingAway CloseCode = 1001
	// CloseNotUTF8: The client sent a text frame that is no UTF-8.
	CloseNotUTF8 CloseCode = 1007
	// ClosePolicy: The client broke a rule that has no code of its own.
	ClosePolicy CloseCode = 1008
	// CloseTooBig: The client sent a frame far above `maxFrame`.
	CloseTooBig CloseCode = 1009
	// CloseInternal: The server could not go on with this connection.
	CloseInternal CloseCode = 1011
	// CloseRestart: The server drains; `goaway` came before.
	CloseRestart CloseCode = 1012
	// CloseOverloaded: The server takes no further session now.
	CloseOverloaded CloseCode = 1013
	// CloseSlowConsumer: The connection's queue was full or a write took too long. The log brings the client back to where it was.
	CloseSlowConsumer CloseCode = 4000
	// CloseAckTimeout: An event or a welcome was not acked in time.
	CloseAckTimeout CloseCode = 4001
	// CloseTokenExpired: The token has ended. The client gets a fresh one first.
	CloseTokenExpired CloseCode = 4002
	// CloseNoPong: A WebSocket ping was not answered in time.
	CloseNoPong CloseCode = 4003
	// CloseRateLimit: The client kept sending more than it may.
	CloseRateLimit CloseCode = 4004
	// CloseBadToken: The token is malformed, forged, revoked or not for this service.
	CloseBadToken CloseCode = 4500
	// CloseForbidden: The token is good, but not for this.
	CloseForbidden CloseCode = 4501
	// CloseProtocolError: The client broke the protocol, for example by no hello in time.
	CloseProtocolError CloseCode = 4502
	// CloseUnsupportedVersion: The client offered no subprotocol that the server speaks.
	CloseUnsupportedVersion CloseCode = 4503
	// CloseTooManySessions: The user has as many sessions as he may.
	CloseTooManySessions CloseCode = 4504
	// CloseKicked: The application ended the user's sessions.
	CloseKicked CloseCode = 4505
)

// Codes of the error frame.
const (
	// ErrorBadFrame: The frame is no JSON object, has an unknown `type`, or a field of a wrong form.
	ErrorBadFrame ErrorCode = "bad_frame"
	// ErrorBadAck: The ack has no usable `seq` or `n`, or is ahead of what was sent.
	ErrorBadAck ErrorCode = "bad_ack"
	// ErrorBadEvent: The event to publish is not valid; the message has a JSON Pointer to the fault.
	ErrorBadEvent ErrorCode = "bad_event"
	// ErrorNotAllowed: The token does not allow publishing events of this type.
	ErrorNotAllowed ErrorCode = "not_allowed"
	// ErrorTooLarge: The frame is larger than `maxFrame`.
	ErrorTooLarge ErrorCode = "too_large"
	// ErrorRateLimited: Too much in too short a time.
	ErrorRateLimited ErrorCode = "rate_limited"
	// ErrorUnavailable: Something behind the server is away; nothing was done.
	ErrorUnavailable ErrorCode = "unavailable"
	// ErrorInternal: A fault of the server; it is logged there.
	ErrorInternal ErrorCode = "internal"
)

var closeCodes = map[CloseCode]closeInfo{
	CloseBye:                {"bye", true},
	CloseGoingAway:          {"server is going away", true},
	CloseNotUTF8:            {"text frame is not UTF-8", true},
	ClosePolicy:             {"policy violation", true},
	CloseTooBig:             {"frame too big", true},
	CloseInternal:           {"internal error", true},
	CloseRestart:            {"server restarts", true},
	CloseOverloaded:         {"server is overloaded, try again later", true},
	CloseSlowConsumer:       {"slow consumer", true},
	CloseAckTimeout:         {"no ack in time", true},
	CloseTokenExpired:       {"token expired", true},
	CloseNoPong:             {"no pong in time", true},
	CloseRateLimit:          {"rate limit exceeded", true},
	CloseBadToken:           {"bad token", false},
	CloseForbidden:          {"forbidden", false},
	CloseProtocolError:      {"protocol error", false},
	CloseUnsupportedVersion: {"unsupported subprotocol version", false},
	CloseTooManySessions:    {"too many sessions", false},
	CloseKicked:             {"session ended by the application", false},
}
