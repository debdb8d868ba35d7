// The events that a Client dispatches, and the target that watches over their listeners.

/** What went wrong: `code` is a close code, one of ErrorCode, or one of the client's own words. */
export class ClientError extends Error {
  /**
   * @param {number | string} code
   * @param {string} message
   * @param {unknown} [cause]
   */
  constructor(code, message, cause) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "ClientError";
    this.code = code;
  }
}

/** An event whose listeners may take their time, like the ExtendableEvent of service workers. */
class WaitableEvent extends Event {
  /** @type {PromiseLike<unknown>[] | null} */
  #waits = [];

  /**
   * The event counts as handled when the promise is settled. Only while the listener runs;
   * a listener that is an async function is waited for anyway.
   * @param {PromiseLike<unknown>} promise
   */
  waitUntil(promise) {
    if (!this.#waits) throw new ClientError("late", "call waitUntil while the listener runs");
    this.#waits.push(promise);
  }

  /** Ends the dispatch and gives up what was waited for. */
  take() {
    const waits = this.#waits ?? [];
    this.#waits = null;
    return waits;
  }
}

/** `event`: an event for this user, in order, once. */
export class DeliveryEvent extends WaitableEvent {
  /** @param {{event: import("./types.js").CloudEvent, seq?: number, redelivered?: boolean}} item */
  constructor(item) {
    super("event");
    this.event = item.event;
    this.seq = item.seq;
    this.redelivered = item.redelivered ?? false;
  }
}

/** `resync`: nobody can vouch for what is shown; load it (again). Nothing is acked before that is done. */
export class ResyncEvent extends WaitableEvent {
  /** @param {number} attempt counts from 1; more when loading failed before */
  constructor(attempt) {
    super("resync");
    this.attempt = attempt;
  }
}

/** `statechange` */
export class StateChangeEvent extends Event {
  /**
   * @param {import("./types.js").State} state
   * @param {import("./types.js").State} previous
   * @param {number} [retryAt] when the next attempt begins, ms
   */
  constructor(state, previous, retryAt) {
    super("statechange");
    this.state = state;
    this.previous = previous;
    this.retryAt = retryAt;
  }
}

/** `goaway`: this server leaves; the client moves by itself. */
export class GoAwayEvent extends Event {
  /** @param {{reconnectAfter: number, reason: string}} frame */
  constructor(frame) {
    super("goaway");
    this.reconnectAfter = frame.reconnectAfter;
    this.reason = frame.reason;
  }
}

/** `error`; `terminal` when the client closed itself over it: sign in again, or give up. */
export class ErrorEvent extends Event {
  /**
   * @param {ClientError} error
   * @param {boolean} terminal
   */
  constructor(error, terminal) {
    super("error");
    this.error = error;
    this.terminal = terminal;
  }
}

/** An EventTarget that learns what its listeners return and throw; a plain one keeps both to itself. */
export class Emitter extends EventTarget {
  /** @type {WeakMap<object, EventListener>} */
  #wrapped = new WeakMap();
  #watched = false;

  /** @override @type {EventTarget["addEventListener"]} */
  addEventListener(type, listener, options) {
    if (type === "error") this.#watched = true;
    super.addEventListener(type, listener && this.#wrap(listener), options);
  }

  /** @override @type {EventTarget["removeEventListener"]} */
  removeEventListener(type, listener, options) {
    super.removeEventListener(type, listener && (this.#wrapped.get(listener) ?? null), options);
  }

  /**
   * @param {EventListenerOrEventListenerObject} listener
   * @returns {EventListener}
   */
  #wrap(listener) {
    let wrapper = this.#wrapped.get(listener);
    if (!wrapper) {
      wrapper = (event) => {
        try {
          const result = /** @type {any} */ (
            typeof listener === "function" ? listener.call(this, event) : listener.handleEvent(event)
          );
          if (typeof result?.then !== "function") return;
          if (event instanceof WaitableEvent) event.waitUntil(result);
          else result.then(null, (/** @type {unknown} */ error) => this.#threw(event, error));
        } catch (error) {
          if (event instanceof WaitableEvent) event.waitUntil(Promise.reject(error));
          else this.#threw(event, error);
        }
      };
      this.#wrapped.set(listener, wrapper);
    }
    return wrapper;
  }

  /**
   * @param {Event} event
   * @param {unknown} error
   */
  #threw(event, error) {
    // An `error` listener that throws must not raise the next `error`.
    if (event.type === "error") console.error(error);
    else this.raise(new ClientError("handler", `listener of ${event.type} threw: ${error}`, error));
  }

  /**
   * @param {ClientError} error
   * @param {boolean} [terminal]
   */
  raise(error, terminal = false) {
    if (!this.#watched) console.error(error);
    this.dispatchEvent(new ErrorEvent(error, terminal));
  }

  /**
   * Dispatches and gives a promise where a listener wants to be waited for, so that an event
   * nobody waits for costs no turn of the microtask queue. The promise rejects with the first
   * failure, but only after all are settled.
   * @param {WaitableEvent} event
   * @returns {Promise<void> | undefined}
   */
  deliver(event) {
    this.dispatchEvent(event);
    const waits = event.take();
    if (waits.length === 0) return undefined;
    return Promise.allSettled(waits).then((results) => {
      for (const result of results) if (result.status === "rejected") throw result.reason;
    });
  }
}
