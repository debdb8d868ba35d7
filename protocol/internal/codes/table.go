package codes

// Close is one WebSocket close code.
type Close struct {
	Code      int
	Name      string // in Go after "Close", and in upper snake case for the client
	Reason    string // on the wire, at most 123 bytes (RFC 6455, section 5.5: a control frame holds 125, two are the code)
	Reconnect bool   // the client connects again by itself
	Doc       string // when the server closes with it, and what the client does
}

// Error is one code of the error frame.
type Error struct {
	Code  string
	Name  string // in Go after "Error"
	Again bool   // the same request may succeed later
	Doc   string
}

// Closes is the table of close codes, in order of their numbers.
var Closes = []Close{
	{1000, "Bye", "bye", true, "Answers the client's own close. A client that did not ask for it comes back: something between it and the server did."},
	{1001, "GoingAway", "server is going away", true, "The server leaves without a drain."},
	{1007, "NotUTF8", "text frame is not UTF-8", true, "The client sent a text frame that is no UTF-8."},
	{1008, "Policy", "policy violation", true, "The client broke a rule that has no code of its own."},
	{1009, "TooBig", "frame too big", true, "The client sent a frame far above `maxFrame`."},
	{1011, "Internal", "internal error", true, "The server could not go on with this connection."},
	{1012, "Restart", "server restarts", true, "The server drains; `goaway` came before."},
	{1013, "Overloaded", "server is overloaded, try again later", true, "The server takes no further session now."},
	{4000, "SlowConsumer", "slow consumer", true, "The connection's queue was full or a write took too long. The log brings the client back to where it was."},
	{4001, "AckTimeout", "no ack in time", true, "An event or a welcome was not acked in time."},
	{4002, "TokenExpired", "token expired", true, "The token has ended. The client gets a fresh one first."},
	{4003, "NoPong", "no pong in time", true, "A WebSocket ping was not answered in time."},
	{4004, "RateLimit", "rate limit exceeded", true, "The client kept sending more than it may."},
	{4500, "BadToken", "bad token", false, "The token is malformed, forged, revoked or not for this service."},
	{4501, "Forbidden", "forbidden", false, "The token is good, but not for this."},
	{4502, "ProtocolError", "protocol error", false, "The client broke the protocol, for example by no hello in time."},
	{4503, "UnsupportedVersion", "unsupported subprotocol version", false, "The client offered no subprotocol that the server speaks."},
	{4504, "TooManySessions", "too many sessions", false, "The user has as many sessions as he may."},
	{4505, "Kicked", "session ended by the application", false, "The application ended the user's sessions."},
}

// Errors is the table of the error frame's codes.
var Errors = []Error{
	{"bad_frame", "BadFrame", false, "The frame is no JSON object, has an unknown `type`, or a field of a wrong form."},
	{"bad_ack", "BadAck", false, "The ack has no usable `seq` or `n`, or is ahead of what was sent."},
	{"bad_event", "BadEvent", false, "The event to publish is not valid; the message has a JSON Pointer to the fault."},
	{"not_allowed", "NotAllowed", false, "The token does not allow publishing events of this type."},
	{"too_large", "TooLarge", false, "The frame is larger than `maxFrame`."},
	{"rate_limited", "RateLimited", true, "Too much in too short a time."},
	{"unavailable", "Unavailable", true, "Something behind the server is away; nothing was done."},
	{"internal", "Internal", false, "A fault of the server; it is logged there."},
}
