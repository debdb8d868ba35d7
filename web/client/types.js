// Types only: nothing here exists at run time.

/** @typedef {"idle" | "connecting" | "open" | "waiting" | "closed"} State */

/**
 * @typedef {object} CloudEvent
 * @property {string} specversion
 * @property {string} id
 * @property {string} source
 * @property {string} type
 * @property {string} time
 * @property {string} [subject]
 * @property {any} data
 */

/**
 * @typedef {object} Position
 * @property {string} epoch
 * @property {number} seq
 * @property {string} id
 */

/**
 * @typedef {object} Welcome
 * @property {"welcome"} type
 * @property {number} n
 * @property {string} session
 * @property {string} user
 * @property {string} instance
 * @property {string} epoch
 * @property {number} seq
 * @property {string} id
 * @property {boolean} recovered
 * @property {number} pingInterval
 * @property {number} reconnectWithin
 * @property {number} maxFrame
 * @property {number | string} [tokenExpiresAt]
 */

/**
 * @typedef {object} Outgoing an event to publish
 * @property {string} [id] a UUID in lower case; made when absent
 * @property {string[]} to
 * @property {string} type
 * @property {string} [subject]
 * @property {any} [data]
 * @property {boolean} [ephemeral]
 */

/**
 * What the client takes from its surroundings; tests bring their own.
 * @typedef {object} Env
 * @property {new (url: string, protocols: string) => WebSocket} WebSocket
 * @property {() => number} now ms
 * @property {(callback: () => void, ms: number) => any} setTimeout
 * @property {(timer: any) => void} clearTimeout
 * @property {() => number} random 0 ≤ x < 1
 */

/**
 * @typedef {object} Options
 * @property {string | (() => string | Promise<string>)} url of the socket endpoint; a function is asked before every attempt
 * @property {() => string | null | Promise<string | null>} getToken called when a token is needed; null: the user must sign in again
 * @property {string} [device] at most 32 bytes, shown to operators
 * @property {AbortSignal} [signal] closes the client
 * @property {{window?: EventTarget, document?: EventTarget & {visibilityState: string}}} [page] whose online, pageshow and visibilitychange wake the client; default: the globals
 * @property {Env["WebSocket"]} [WebSocket]
 * @property {Pick<Env, "now" | "setTimeout" | "clearTimeout">} [clock]
 * @property {Env["random"]} [random]
 */

export {};
