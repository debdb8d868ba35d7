// What comes from the server, in order: positions, duplicates, reloads and acks.

import { ClientError, DeliveryEvent, ResyncEvent } from "./events.js";

/** Ids remembered; the server's log replays at most 512 seqs, the rest is for moves between epochs. */
const SEEN = 2_048;
/** Ephemeral ones have their own, so that a flood of typing marks pushes out no other. */
const MARKS = 256;
/** With slow listeners an ack goes out at least so often, well below the server's ack timeout. */
const ACK_EVERY = 1_000;
const RELOAD_AGAIN = 1_000;
const RELOAD_CAP = 30_000;

/** @typedef {import("./connection.js").Connection} Connection */

/**
 * One queue for all connections: the next event is handed over when the listeners of the one
 * before are done, also when that one came on a connection which is gone by now. So a replayed
 * event whose first listener still runs waits for it without further care.
 */
export class Receiver {
  /** @type {import("./types.js").Position | null} */
  position = null;
  /** @type {[Connection, any][]} */
  #queue = [];
  #busy = false;
  /** @type {Set<string>} */
  #seen = new Set();
  /** @type {Set<string>} */
  #marks = new Set();
  /** The reload that is owed: what nobody loaded yet must not be acked, on any connection. @type {object | null} */
  #reload = null;
  /** @type {Connection | null} */
  #newest = null;

  /**
   * @param {import("./types.js").Env} env
   * @param {import("./events.js").Emitter} target
   */
  constructor(env, target) {
    this.env = env;
    this.target = target;
  }

  /** Where a new connection resumes. None while a reload is owed: the server would vouch for what nobody has loaded. */
  get resume() {
    return (!this.#reload && this.position) || undefined;
  }

  /**
   * @param {Connection} conn
   * @param {any} frame `welcome` or `events`
   */
  push(conn, frame) {
    this.#queue.push([conn, frame]);
    if (!this.#busy) this.#run();
  }

  async #run() {
    this.#busy = true;
    try {
      for (let next; (next = this.#queue.shift()); ) {
        const [conn, frame] = next;
        if (!conn.live) continue;
        if (frame.type === "welcome") this.#welcome(conn, frame);
        else {
          for (const item of frame.events) {
            const done = this.#hand(conn, item);
            if (done) await done;
            // Ended late: the next connection brings it again, and acks it.
            if (!conn.live) break;
            this.#handled(conn, item);
          }
        }
        this.#ack(conn);
      }
    } finally {
      this.#busy = false;
    }
  }

  /**
   * @param {Connection} conn
   * @param {import("./types.js").Welcome} welcome
   */
  #welcome(conn, welcome) {
    this.#newest = conn;
    conn.n = welcome.n;
    conn.epoch = welcome.epoch;
    conn.handled = welcome.seq;
    conn.acked = -1;
    this.position = { epoch: welcome.epoch, seq: welcome.seq, id: welcome.id };
    if (welcome.recovered) return;
    this.#reload = {};
    this.#resync(this.#reload, 1);
  }

  /**
   * @param {Connection} conn
   * @param {{event: import("./types.js").CloudEvent, seq?: number, redelivered?: boolean}} item
   */
  #hand(conn, item) {
    const { id } = item.event;
    const [seen, limit] = item.seq === undefined ? [this.#marks, MARKS] : [this.#seen, SEEN];
    if (seen.has(id) || (item.seq !== undefined && item.seq <= conn.handled)) return undefined;
    seen.add(id);
    if (seen.size > limit) for (const oldest of seen) { seen.delete(oldest); break; }
    return this.target
      .deliver(new DeliveryEvent(item))
      ?.catch((error) => this.#raise("event", error));
  }

  /**
   * @param {Connection} conn
   * @param {{event: import("./types.js").CloudEvent, seq?: number}} item
   */
  #handled(conn, item) {
    if (item.seq === undefined || item.seq <= conn.handled) return;
    conn.handled = item.seq;
    this.position = { epoch: conn.epoch, seq: item.seq, id: item.event.id };
    if (this.env.now() - conn.ackedAt >= ACK_EVERY) this.#ack(conn);
  }

  /**
   * One ack for all that a frame brought. Deliberately without a timer: browsers slow the timers
   * of hidden pages down to one a minute, longer than the server waits.
   * @param {Connection} conn
   */
  #ack(conn) {
    if (this.#reload || !conn.live || conn.handled <= conn.acked) return;
    conn.acked = conn.handled;
    conn.ackedAt = this.env.now();
    conn.send({ type: "ack", n: conn.n, seq: conn.handled });
  }

  /**
   * Events go on while the application loads. A reload that failed is none: it is asked for again.
   * @param {object} reload
   * @param {number} attempt
   */
  async #resync(reload, attempt) {
    try {
      const loading = this.target.deliver(new ResyncEvent(attempt));
      if (loading) await loading;
    } catch (error) {
      this.#raise("resync", error);
      const wait = Math.min(RELOAD_CAP, RELOAD_AGAIN * 2 ** (attempt - 1)) * (0.5 + this.env.random() / 2);
      this.env.setTimeout(() => {
        // Without a connection the next welcome asks for itself; after a hand-over the next one may not.
        if (this.#reload === reload && this.#newest?.live) this.#resync(reload, attempt + 1);
      }, wait);
      return;
    }
    // A later welcome wants a reload of its own.
    if (this.#reload !== reload) return;
    this.#reload = null;
    if (this.#newest) this.#ack(this.#newest);
  }

  /**
   * @param {string} type
   * @param {unknown} error
   */
  #raise(type, error) {
    this.target.raise(new ClientError("handler", `listener of ${type} failed: ${error}`, error));
  }
}
