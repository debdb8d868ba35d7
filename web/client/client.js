// The states of a client, and which connection is whose successor.

import { Backoff } from "./backoff.js";
import { CloseCode } from "./codes.js";
import { Connection } from "./connection.js";
import { ClientError, Emitter, GoAwayEvent, StateChangeEvent } from "./events.js";
import { Publisher } from "./publisher.js";
import { Receiver } from "./receiver.js";
import { Tokens, within } from "./tokens.js";

const URL_WITHIN = 15_000;
/** After waking up nobody wants to wait for the usual ten seconds. */
const WAKE_ANSWER = 3_000;
const EXPIRED_LIMIT = 3;

/**
 * @typedef {import("./types.js").Options} Options
 * @typedef {import("./types.js").State} State
 * @typedef {import("./types.js").Welcome} Welcome
 */

/**
 *     idle ──connect──▶ connecting ──welcome──▶ open
 *                        ▲     │ lost            │ lost
 *                   timer│     ▼                 │
 *                       waiting ◀────────────────┘        closed: close(), or a close code from 4500 on
 *
 * A hand-over (`goaway`) stays `open`: the old connection serves until the new one is welcomed, which is told
 * by a `statechange` from open to open.
 */
export class Client extends Emitter {
  /** @type {State} */
  #state = "idle";
  /** Welcomed, in use. @type {Connection | null} */
  #current = null;
  /** Dialled, not welcomed yet. @type {Connection | null} */
  #next = null;
  /** Names the dial that is under way, so that an older one that ends late is ignored. @type {object | null} */
  #dialling = null;
  /** @type {any} */
  #timer = null;
  #retryAt = 0;
  #expired = 0;
  /** @type {AbortController | null} */
  #listening = null;

  /** @param {Options} options */
  constructor(options) {
    super();
    const clock = options.clock ?? {
      now: () => Date.now(),
      setTimeout: (callback, ms) => setTimeout(callback, ms),
      clearTimeout: (timer) => clearTimeout(timer),
    };
    /** @type {import("./types.js").Env} */
    const env = { ...clock, random: options.random ?? Math.random, WebSocket: options.WebSocket ?? globalThis.WebSocket };
    this.#env = env;
    this.#options = options;
    this.#backoff = new Backoff(env);
    this.#tokens = new Tokens(env, options.getToken);
    this.#receiver = new Receiver(env, this);
    this.#publisher = new Publisher(env);
    options.signal?.addEventListener("abort", () => this.close(), { once: true });
    if (options.signal?.aborted) this.#state = "closed";
  }
  #env;
  #options;
  #backoff;
  #tokens;
  #receiver;
  #publisher;

  get state() {
    return this.#state;
  }

  /** What the server in use said of itself. @returns {Readonly<Welcome> | null} */
  get welcome() {
    return this.#current?.welcome ?? null;
  }

  /** Where the client stands: the last event handled. */
  get position() {
    return this.#receiver.position;
  }

  /** Starts; does nothing where it is started already. After `close` it resumes where it was. */
  connect() {
    if (this.#options.signal?.aborted || (this.#state !== "idle" && this.#state !== "closed")) return;
    this.#listen();
    this.#dial();
  }

  /** Ends for good (or until `connect`); rejects what is not published. */
  close() {
    this.#end(new ClientError(1000, "client closed"));
  }

  /**
   * Publishes into the outbox, where the token allows it.
   * @param {import("./types.js").Outgoing} event
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<string>} the id, once it is committed; survives reconnects
   */
  publish(event, options) {
    if (this.#state === "closed") return Promise.reject(new ClientError(1000, "client closed"));
    return this.#publisher.publish(event, options?.signal);
  }

  async #dial() {
    this.#stopTimer();
    this.#next?.close();
    this.#next = null;
    const dialling = (this.#dialling = {});
    if (!this.#current) this.#enter("connecting");
    try {
      const { url } = this.#options;
      const [where, token] = await Promise.all([
        typeof url === "function" ? within(this.#env, URL_WITHIN, url()) : url,
        this.#tokens.get(),
      ]);
      if (this.#dialling !== dialling) return;
      if (!token) return this.#fail(new ClientError(CloseCode.BAD_TOKEN, "no token: sign in again"));
      this.#next = new Connection(this.#env, where, {
        hello: () => this.#hello(token),
        onwelcome: (conn, frame) => this.#welcomed(conn, frame),
        onframe: (conn, frame) => this.#frame(conn, frame),
        onlost: (conn, code, reason) => this.#lost(conn, code, reason),
        onbad: (error) => this.raise(error),
      });
    } catch (error) {
      if (this.#dialling !== dialling) return;
      this.#dialling = null;
      this.raise(new ClientError("connect", `connect: ${error}`, error));
      this.#retry(this.#backoff.next());
    }
  }

  /** @param {string} token */
  #hello(token) {
    return { type: "hello", token, resume: this.#receiver.resume, acks: true, device: this.#options.device };
  }

  /**
   * @param {Connection} conn
   * @param {Welcome} welcome
   */
  #welcomed(conn, welcome) {
    this.#backoff.within = welcome.reconnectWithin;
    const isNew = conn === this.#next;
    if (isNew) {
      this.#stopTimer();
      this.#dialling = this.#next = null;
      // Whatever the old one still had comes again on the new one, or is covered by its reload.
      const old = this.#current;
      this.#current = conn;
      if (old) {
        this.#publisher.detach(old);
        old.close();
      }
      this.#expired = 0;
      this.#backoff.opened();
      this.#publisher.attach(conn);
    }
    this.#tokens.keep(
      welcome.tokenExpiresAt,
      (token) => conn.send({ type: "token", token }),
      (error) => this.raise(new ClientError("token", `renew token: ${error}`, error)),
    );
    if (isNew) this.#enter("open");
    this.#receiver.push(conn, welcome);
  }

  /**
   * All but events and welcomes need no place in the queue, and must not have one: a listener
   * may wait for its own publish.
   * @param {Connection} conn
   * @param {any} frame
   */
  #frame(conn, frame) {
    if (frame.type === "events") this.#receiver.push(conn, frame);
    else if (frame.type === "published") this.#publisher.published(frame);
    else if (frame.type === "error") {
      if (frame.ref !== undefined) this.#publisher.refused(frame);
      else this.raise(new ClientError(frame.code, frame.message));
    } else if (frame.type === "goaway" && conn === this.#current) {
      this.dispatchEvent(new GoAwayEvent(frame));
      if (this.#timer === null && !this.#dialling) this.#retry(frame.reconnectAfter);
    }
  }

  /**
   * @param {Connection} conn
   * @param {number} code
   * @param {string} reason
   */
  #lost(conn, code, reason) {
    const wasCurrent = conn === this.#current;
    if (wasCurrent) {
      this.#current = null;
      this.#publisher.detach(conn);
      this.#backoff.closed();
      this.#tokens.stop();
    } else {
      this.#dialling = this.#next = null;
    }
    if (code === CloseCode.TOKEN_EXPIRED) {
      this.#tokens.drop();
      if (++this.#expired >= EXPIRED_LIMIT) return this.#fail(new ClientError(code, "every token has expired: sign in again"));
    }
    if (code >= 4500 && code <= 4999) {
      // During a hand-over the old session counts too; give it up and try once more.
      if (code !== CloseCode.TOO_MANY_SESSIONS || wasCurrent || !this.#current) {
        return this.#fail(new ClientError(code, reason || "refused"));
      }
      this.#publisher.detach(this.#current);
      this.#current.close();
      this.#current = null;
    }
    if (wasCurrent && this.#dialling) this.#enter("connecting");
    else if (wasCurrent && this.#timer !== null) this.#enter("waiting", this.#retryAt);
    else if (conn.urgent) this.#dial();
    else this.#retry(this.#backoff.next());
  }

  /** @param {number} delay */
  #retry(delay) {
    this.#stopTimer();
    this.#retryAt = this.#env.now() + delay;
    this.#timer = this.#env.setTimeout(() => this.#dial(), delay);
    if (!this.#current) this.#enter("waiting", this.#retryAt);
  }

  #stopTimer() {
    this.#env.clearTimeout(this.#timer);
    this.#timer = null;
  }

  /** @param {ClientError} error */
  #fail(error) {
    this.#end(error);
    this.raise(error, true);
  }

  /** @param {ClientError} error */
  #end(error) {
    this.#stopTimer();
    this.#tokens.stop();
    this.#tokens.drop();
    this.#dialling = null;
    this.#next?.close();
    this.#current?.close();
    if (this.#current) this.#publisher.detach(this.#current);
    this.#next = this.#current = null;
    this.#listening?.abort();
    this.#publisher.end(error);
    this.#enter("closed");
  }

  #listen() {
    this.#listening = new AbortController();
    const { signal } = this.#listening;
    const { window, document } = this.#options.page ?? /** @type {any} */ (globalThis);
    const wake = () => this.#wake();
    for (const type of ["online", "offline", "pageshow"]) window?.addEventListener?.(type, wake, { signal });
    document?.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") wake();
    }, { signal });
  }

  /** The network changed, or somebody looks again: find out now what a throttled timer would find out late. */
  #wake() {
    if (this.#current) {
      // Found dead now, it is replaced without a pause: somebody waits, and not everybody does at once.
      this.#current.urgent = true;
      this.#current.probe(WAKE_ANSWER);
    } else if (this.#state === "waiting") this.#dial();
    else if (this.#next && this.#env.now() - this.#next.startedAt > WAKE_ANSWER) this.#dial();
  }

  /**
   * @param {State} state
   * @param {number} [retryAt]
   */
  #enter(state, retryAt) {
    const previous = this.#state;
    // Open again is another connection, waiting again another time; the rest is no news.
    if (previous === state && state !== "waiting" && state !== "open") return;
    this.#state = state;
    this.dispatchEvent(new StateChangeEvent(state, previous, retryAt));
  }
}
