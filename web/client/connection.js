// One WebSocket, from dialling to its end. It knows nothing of positions.

import { ClientError } from "./events.js";
import { ErrorCode } from "./codes.js";

/** A server that takes longer to say welcome isn't one worth waiting for. */
const WELCOME_WITHIN = 10_000;
const ANSWER_WITHIN = 10_000;
/** A timer that comes so late shows that we slept, not that the server is silent. */
const OVERSLEPT = 5_000;

/**
 * @typedef {object} Owner
 * @property {() => object} hello the first frame, made when the socket is open
 * @property {(conn: Connection, frame: import("./types.js").Welcome) => void} onwelcome
 * @property {(conn: Connection, frame: any) => void} onframe any other frame; before the welcome only a goaway or an error
 * @property {(conn: Connection, code: number, reason: string) => void} onlost once; code 0: found dead by ourselves
 * @property {(error: ClientError) => void} onbad
 */

export class Connection {
  /** false for good once the connection is lost or closed: nothing is sent or handled any more. */
  live = true;
  /** The newest welcome that was taken in order; set by the receiver. */
  n = 0;
  epoch = "";
  handled = -1;
  acked = -1;
  ackedAt = 0;

  /** @type {import("./types.js").Welcome | null} */
  welcome = null;
  #received = 0;
  #lastAt = 0;
  /** @type {any} */
  #timer;
  #probing = false;
  /** Set by the owner with a probe: what it finds out is wanted at once. Ends with the answer. */
  urgent = false;

  /**
   * @param {import("./types.js").Env} env
   * @param {string} url
   * @param {Owner} owner
   */
  constructor(env, url, owner) {
    this.env = env;
    this.owner = owner;
    this.startedAt = env.now();
    this.socket = new env.WebSocket(url, "lastmile.v1");
    this.socket.onopen = () => this.send(owner.hello());
    this.socket.onmessage = (message) => this.#onmessage(message.data);
    this.socket.onclose = (close) => this.#lost(close.code, close.reason);
    this.#arm(() => this.#lost(0, "no welcome"), WELCOME_WITHIN);
  }

  /** @param {object} frame */
  send(frame) {
    if (this.live) this.socket.send(JSON.stringify(frame));
  }

  /** Closes without waiting for the peer's answer: a black-holed one would keep us for minutes. */
  close(code = 1000, reason = "bye") {
    if (!this.live) return;
    this.live = false;
    this.env.clearTimeout(this.#timer);
    this.socket.onopen = this.socket.onmessage = this.socket.onclose = null;
    this.socket.close(code, reason);
  }

  /**
   * Asks whether the server is there; nothing heard within `ms`: lost.
   * @param {number} ms
   */
  probe(ms = ANSWER_WITHIN, again = true) {
    if (!this.live || !this.welcome) return;
    const before = this.#received;
    const due = this.env.now() + ms;
    this.#probing = true;
    this.send({ type: "ping" });
    this.#arm(() => {
      this.#probing = false;
      if (this.#received !== before) {
        this.urgent = false;
        this.#watch();
      } else if (again && this.env.now() - due > OVERSLEPT) this.probe(ms, false);
      else this.#lost(0, "no answer");
    }, ms);
  }

  /** @param {unknown} data */
  #onmessage(data) {
    this.#received++;
    this.#lastAt = this.env.now();
    let frame;
    try {
      frame = JSON.parse(/** @type {string} */ (data));
      if (!check(frame, this.welcome !== null)) throw new Error("wrong shape");
    } catch (error) {
      // To skip a frame would be to skip its events: resume instead.
      this.owner.onbad(new ClientError(ErrorCode.BAD_FRAME, "unreadable frame from the server", error));
      this.#lost(0, "bad frame");
      return;
    }
    if (frame.type !== "welcome") return this.owner.onframe(this, frame);
    this.welcome = frame;
    if (!this.#probing) this.#watch();
    this.owner.onwelcome(this, frame);
  }

  /** Pings when nothing came for a while; frames in between cost no timer. */
  #watch() {
    const interval = /** @type {import("./types.js").Welcome} */ (this.welcome).pingInterval;
    const silent = Math.max(0, this.env.now() - this.#lastAt);
    if (silent >= interval) this.probe();
    else this.#arm(() => this.#watch(), interval - silent);
  }

  /**
   * @param {() => void} callback
   * @param {number} ms
   */
  #arm(callback, ms) {
    this.env.clearTimeout(this.#timer);
    this.#timer = this.env.setTimeout(callback, ms);
  }

  /**
   * @param {number} code
   * @param {string} reason
   */
  #lost(code, reason) {
    if (!this.live) return;
    this.close(code === 0 ? 4000 : 1000, reason);
    this.owner.onlost(this, code, reason);
  }
}

/**
 * @param {any} frame
 * @param {boolean} welcomed
 */
function check(frame, welcomed) {
  if (frame.type === "welcome") {
    return Number.isInteger(frame.n) && Number.isInteger(frame.seq) && typeof frame.epoch === "string" && frame.pingInterval > 0;
  }
  if (frame.type !== "events") return typeof frame.type === "string";
  return welcomed && frame.events.every((/** @type {any} */ item) => typeof item.event.id === "string");
}
