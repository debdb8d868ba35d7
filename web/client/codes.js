// Code generated from the table of package protocol; DO NOT EDIT.

/** WebSocket close codes. 4000 to 4499: reconnect. 4500 to 4999: don't. */
export const CloseCode = Object.freeze({
  BYE: 1000,
  GOING_AWAY: 1001,
  NOT_UTF8: 1007,
  POLICY: 1008,
  TOO_BIG: 1009,
  INTERNAL: 1011,
  RESTART: 1012,
  OVERLOADED: 1013,
  SLOW_CONSUMER: 4000,
  ACK_TIMEOUT: 4001,
  TOKEN_EXPIRED: 4002,
  NO_PONG: 4003,
  RATE_LIMIT: 4004,
  BAD_TOKEN: 4500,
  FORBIDDEN: 4501,
  PROTOCOL_ERROR: 4502,
  UNSUPPORTED_VERSION: 4503,
  TOO_MANY_SESSIONS: 4504,
  KICKED: 4505,
});

/** Codes of the `error` frame. */
export const ErrorCode = Object.freeze({
  BAD_FRAME: "bad_frame",
  BAD_ACK: "bad_ack",
  BAD_EVENT: "bad_event",
  NOT_ALLOWED: "not_allowed",
  TOO_LARGE: "too_large",
  RATE_LIMITED: "rate_limited",
  UNAVAILABLE: "unavailable",
  INTERNAL: "internal",
});
