// Never run: tsc --checkJs shows here when index.d.ts and the code part ways.

import * as declared from "./index.js";
import * as client from "./client.js";
import * as events from "./events.js";

/** @type {new (options: declared.Options) => Pick<declared.Client, "state" | "welcome" | "position" | "connect" | "close" | "publish">} */
export const Client = client.Client;
/** @type {(e: events.DeliveryEvent) => declared.DeliveryEvent} */
export const delivery = (e) => e;
/** @type {(e: events.ResyncEvent) => declared.ResyncEvent} */
export const resync = (e) => e;
/** @type {(e: events.StateChangeEvent) => declared.StateChangeEvent} */
export const state = (e) => e;
/** @type {(e: events.GoAwayEvent) => declared.GoAwayEvent} */
export const goaway = (e) => e;
/** @type {(e: events.ErrorEvent) => declared.ErrorEvent} */
export const error = (e) => e;
/** @type {(o: import("./types.js").Outgoing) => declared.Outgoing} */
export const outgoing = (o) => o;

const typed = new declared.Client({ url: "ws://x", getToken: async () => null });
typed.addEventListener("event", async (e) => e.event.data);
typed.addEventListener("resync", (e) => e.waitUntil(Promise.resolve()));
