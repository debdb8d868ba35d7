// The user's token: asked for when needed, kept while good, renewed before its end.

import { ClientError } from "./events.js";

const WITHIN = 15_000;
const DAY = 86_400_000;

export class Tokens {
  /** @type {string | null} */
  #token = null;
  #renewAt = Infinity;
  /** @type {any} */
  #timer;
  /** Names the connection that renewals are for. @type {object | null} */
  #keeping = null;

  /**
   * @param {import("./types.js").Env} env
   * @param {() => string | null | Promise<string | null>} getToken
   */
  constructor(env, getToken) {
    this.env = env;
    this.getToken = getToken;
  }

  /**
   * The kept one serves for a reconnect: when a server dies, its sessions must not storm the
   * application's login next.
   */
  async get() {
    if (this.env.now() >= this.#renewAt) this.drop();
    return (this.#token ??= await within(this.env, WITHIN, this.getToken()));
  }

  drop() {
    this.#token = null;
    this.#renewAt = Infinity;
  }

  /**
   * Renews at four fifths of what is left, again and again: the server says the end once a welcome.
   * @param {number | string | undefined} expiresAt
   * @param {(token: string) => void} send
   * @param {(error: unknown) => void} failed
   */
  keep(expiresAt, send, failed) {
    this.stop();
    if (expiresAt === undefined) return;
    const left = new Date(expiresAt).getTime() - this.env.now();
    // A clock that is wrong by hours: leave it to close code 4002.
    if (!(left > 0)) return;
    const period = Math.min(DAY, left * 0.8);
    const keeping = (this.#keeping = {});
    const renew = async () => {
      this.drop();
      try {
        const token = await this.get();
        if (!token || this.#keeping !== keeping) return;
        send(token);
        again(period);
      } catch (error) {
        if (this.#keeping !== keeping) return;
        failed(error);
        // The old one is good for another quarter of the period.
        this.#timer = this.env.setTimeout(renew, Math.max(1_000, period / 16));
      }
    };
    const again = (/** @type {number} */ ms) => {
      this.#renewAt = this.env.now() + ms;
      this.#timer = this.env.setTimeout(renew, ms);
    };
    again(period);
  }

  stop() {
    this.#keeping = null;
    this.env.clearTimeout(this.#timer);
  }
}

/**
 * @template T
 * @param {import("./types.js").Env} env
 * @param {number} ms
 * @param {T | Promise<T>} value
 * @returns {Promise<T>}
 */
export async function within(env, ms, value) {
  /** @type {any} */
  let timer;
  const late = new Promise((_, reject) => {
    timer = env.setTimeout(() => reject(new ClientError("timeout", `no answer within ${ms} ms`)), ms);
  });
  try {
    return /** @type {T} */ (await Promise.race([value, late]));
  } finally {
    env.clearTimeout(timer);
  }
}
