/** The browser client of lastmile: connect, resume, dedup, ack. */
export { Client } from "./client.js";
export { ClientError, DeliveryEvent, ErrorEvent, GoAwayEvent, ResyncEvent, StateChangeEvent } from "./events.js";
export { CloseCode, ErrorCode } from "./codes.js";
