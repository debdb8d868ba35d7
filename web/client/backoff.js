// When to try again.

const CAP = 30_000;
const STABLE = 30_000;
const FLOOR = 100;

/**
 * The first attempt after a loss comes after a random part of `within`, so that the sessions of a
 * dead server spread; the next ones with full jitter, doubling. Only a connection that held for
 * 30 s starts it over: one that opens and dies at once must not be retried at full speed.
 */
export class Backoff {
  #attempt = 0;
  #openedAt = -1;
  /** What the last welcome said, ms; 4 s before there was one. */
  within = 4_000;

  /** @param {import("./types.js").Env} env */
  constructor(env) {
    this.env = env;
  }

  /** ms until the next attempt */
  next() {
    const ceiling = Math.min(CAP, this.within * 2 ** this.#attempt);
    const floor = this.#attempt === 0 ? 0 : Math.min(FLOOR, ceiling);
    this.#attempt++;
    return floor + this.env.random() * (ceiling - floor);
  }

  opened() {
    this.#openedAt = this.env.now();
  }

  closed() {
    if (this.#openedAt >= 0 && this.env.now() - this.#openedAt >= STABLE) this.#attempt = 0;
    this.#openedAt = -1;
  }
}
