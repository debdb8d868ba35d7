// Events on their way from this client into the outbox.

import { ClientError } from "./events.js";
import { ErrorCode } from "./codes.js";

/** A frame that kills its connection every time must not do so for ever. */
const TRIES = 5;
const AGAIN = 1_000;

/** @typedef {import("./connection.js").Connection} Connection */

/**
 * @typedef {object} Pending
 * @property {string} ref
 * @property {import("./types.js").Outgoing & {id: string}} event
 * @property {number} tries
 * @property {(id: string) => void} resolve
 * @property {(error: ClientError) => void} reject
 */

/** Holds each event until it is `published`, and sends it again under its id on the next connection. */
export class Publisher {
  /** @type {Map<string, Pending>} */
  #pending = new Map();
  /** @type {Connection | null} */
  #conn = null;
  #refs = 0;

  /** @param {import("./types.js").Env} env */
  constructor(env) {
    this.env = env;
  }

  /**
   * @param {import("./types.js").Outgoing} event
   * @param {AbortSignal} [signal] gives up waiting; the event may have been published all the same
   * @returns {Promise<string>} the event's id, once it is committed
   */
  publish(event, signal) {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const ref = String(++this.#refs);
      const pending = { ref, event: { ...event, id: event.id ?? uuid() }, tries: 0, resolve, reject };
      this.#pending.set(ref, pending);
      signal?.addEventListener("abort", () => {
        if (this.#pending.delete(ref)) reject(signal.reason);
      }, { once: true });
      if (this.#conn) this.#send(pending);
      else if (event.ephemeral) this.#fail(pending, ErrorCode.UNAVAILABLE, "not connected");
    });
  }

  /** @param {Connection} conn just welcomed for the first time */
  attach(conn) {
    this.#conn = conn;
    for (const pending of [...this.#pending.values()]) this.#send(pending);
  }

  /** @param {Connection} conn */
  detach(conn) {
    if (this.#conn !== conn) return;
    this.#conn = null;
    // Nobody wants to see a typing mark of a minute ago.
    for (const pending of [...this.#pending.values()]) {
      if (pending.event.ephemeral) this.#fail(pending, ErrorCode.UNAVAILABLE, "connection lost");
    }
  }

  /** @param {{ref: string, id: string}} frame */
  published(frame) {
    const pending = this.#pending.get(frame.ref);
    if (!pending) return;
    this.#pending.delete(frame.ref);
    pending.resolve(frame.id);
  }

  /** @param {{ref?: string, code: string, message: string}} frame */
  refused(frame) {
    const pending = this.#pending.get(frame.ref ?? "");
    if (!pending) return;
    const passing = frame.code === ErrorCode.UNAVAILABLE || frame.code === ErrorCode.RATE_LIMITED;
    if (!passing || pending.event.ephemeral) return this.#fail(pending, frame.code, frame.message);
    const conn = this.#conn;
    const wait = AGAIN * 2 ** pending.tries * (0.5 + this.env.random() / 2);
    this.env.setTimeout(() => {
      // A new connection has sent it already.
      if (this.#conn === conn && this.#pending.has(pending.ref)) this.#send(pending);
    }, wait);
  }

  /** @param {ClientError} error */
  end(error) {
    for (const pending of this.#pending.values()) pending.reject(error);
    this.#pending.clear();
  }

  /** @param {Pending} pending */
  #send(pending) {
    const conn = this.#conn;
    if (!conn?.welcome) return;
    if (pending.tries++ >= TRIES) return this.#fail(pending, ErrorCode.UNAVAILABLE, "gave up");
    const frame = { type: "publish", ref: pending.ref, event: pending.event };
    const size = new TextEncoder().encode(JSON.stringify(frame)).length;
    if (size > conn.welcome.maxFrame) {
      return this.#fail(pending, ErrorCode.TOO_LARGE, `${size} bytes, the server takes ${conn.welcome.maxFrame}`);
    }
    conn.send(frame);
  }

  /**
   * @param {Pending} pending
   * @param {string} code
   * @param {string} message
   */
  #fail(pending, code, message) {
    this.#pending.delete(pending.ref);
    pending.reject(new ClientError(code, message));
  }
}

/** crypto.randomUUID exists in secure contexts only, which a page on a LAN address isn't. */
export function uuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}
