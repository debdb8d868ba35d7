// A clock that moves when told, a WebSocket whose server is the test, and a page that wakes when told.

import { Client } from "./index.js";

/** Lets everything run that waits for promises only. */
export async function settle() {
  for (let i = 0; i < 20; i++) await Promise.resolve();
}

export class FakeClock {
  time = 1_800_000_000_000;
  #timers = new Map();
  #last = 0;
  now = () => this.time;
  setTimeout = (callback, ms) => {
    const id = ++this.#last;
    this.#timers.set(id, { at: this.time + Math.max(0, ms), callback });
    return id;
  };
  clearTimeout = (id) => void this.#timers.delete(id);
  get pending() {
    return this.#timers.size;
  }

  /** Runs what falls due, in order. */
  async advance(ms) {
    const end = this.time + ms;
    for (;;) {
      await settle();
      const due = [...this.#timers].filter(([, t]) => t.at <= end).sort((a, b) => a[1].at - b[1].at)[0];
      if (!due) break;
      this.#timers.delete(due[0]);
      this.time = Math.max(this.time, due[1].at);
      due[1].callback();
    }
    this.time = end;
    await settle();
  }

  /** As a browser does for hidden pages or after sleep: timers run late, all at the end. */
  async jump(ms) {
    this.time += ms;
    const due = [...this.#timers].filter(([, t]) => t.at <= this.time);
    for (const [id] of due) this.#timers.delete(id);
    for (const [, timer] of due) timer.callback();
    await settle();
  }
}

export class FakeSocket {
  sent = [];
  closed = null;
  constructor(url, protocol) {
    this.url = url;
    this.protocol = protocol;
  }
  send(text) {
    this.sent.push(JSON.parse(text));
  }
  close(code, reason) {
    this.closed ??= { code, reason };
  }

  // The server's side.
  async open() {
    this.onopen?.({});
    await settle();
  }
  async say(...frames) {
    for (const frame of frames) this.onmessage?.({ data: typeof frame === "string" ? frame : JSON.stringify(frame) });
    await settle();
  }
  async die(code = 1006, reason = "") {
    this.onclose?.({ code, reason });
    await settle();
  }
  of(type) {
    return this.sent.filter((frame) => frame.type === type);
  }
  get hello() {
    return this.of("hello")[0];
  }
  get acks() {
    return this.of("ack").map(({ n, seq }) => [n, seq]);
  }
}

export class FakePage {
  window = new EventTarget();
  document = Object.assign(new EventTarget(), { visibilityState: "visible" });
  async online() {
    this.window.dispatchEvent(new Event("online"));
    await settle();
  }
  async show() {
    this.document.visibilityState = "visible";
    this.document.dispatchEvent(new Event("visibilitychange"));
    await settle();
  }
}

/** A client with everything fake; `random` is the middle unless the test sets it. */
export function setup(options = {}) {
  const clock = options.clock ?? new FakeClock();
  const sockets = [];
  const page = new FakePage();
  const world = { clock, sockets, page, random: 0.5, log: [], errors: [], states: [], token: "t1", get last() { return sockets.at(-1); } };
  const client = new Client({
    url: "ws://a/v1/ws",
    getToken: () => world.token,
    WebSocket: class extends FakeSocket {
      constructor(url, protocol) {
        super(url, protocol);
        sockets.push(this);
      }
    },
    clock,
    random: () => (typeof world.random === "function" ? world.random() : world.random),
    page,
    ...options.client,
  });
  client.addEventListener("error", (e) => world.errors.push(e));
  client.addEventListener("statechange", (e) => world.states.push(e.state));
  if (!options.quiet) client.addEventListener("event", (e) => void world.log.push(e.event.id));
  world.client = client;
  /** Dials, opens and welcomes. */
  world.join = async (fields) => {
    client.connect();
    await settle();
    await world.last.open();
    await world.last.say(welcome(fields));
    return world.last;
  };
  /** Waits for the next attempt, opens and welcomes it. */
  world.rejoin = async (fields) => {
    const before = sockets.length;
    for (let i = 0; i < 60 && sockets.length === before; i++) await clock.advance(1_000);
    await world.last.open();
    if (fields) await world.last.say(welcome(fields));
    return world.last;
  };
  return world;
}

export function welcome(fields = {}) {
  return {
    type: "welcome", n: 1, session: "s", user: "u", instance: "a-000000000000", epoch: "E1", seq: 0, id: "",
    recovered: false, pingInterval: 25_000, reconnectWithin: 4_000, maxFrame: 327_680, ...fields,
  };
}

/** One frame; each argument is `[seq, id]`, or an id alone for an ephemeral event. */
export function events(...items) {
  return {
    type: "events",
    events: items.map((item) => {
      const [seq, id] = Array.isArray(item) ? item : [undefined, item];
      return { seq, event: { specversion: "1.0", id, source: "test", type: "test", time: "2026-01-01T00:00:00Z", data: {} } };
    }),
  };
}

/** A promise and its ends. */
export function gate() {
  const g = {};
  g.promise = new Promise((open, fail) => Object.assign(g, { open, fail }));
  return g;
}
