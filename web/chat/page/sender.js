// Messages on their way to the backend: pending until it has them, failed when it will not.

import * as api from "./api.js";
import { keyOf } from "./model.js";

const GIVE_UP = 60_000;
const KEY = "lastmile.chat.pending";

/** One at a time, so that they are stored in the order they were written. They survive a reload of the page. */
export class Sender {
  #queue = [];
  /** What was given up, by key; it waits for its writer to decide. */
  #failed = new Map();
  #busy = false;
  #local = Date.now();

  constructor(model, changed, signedOut) {
    this.model = model;
    this.changed = changed;
    this.signedOut = signedOut;
  }

  /** Takes up what an earlier life of this tab left behind. */
  restore() {
    let kept = [];
    try {
      kept = JSON.parse(sessionStorage.getItem(KEY) ?? "[]");
    } catch {
      // Not ours: nothing to take up.
    }
    for (const message of kept) {
      if (message.from !== this.model.me.id) continue;
      if (message.problem === undefined) this.#add(message);
      else this.#fail(message, message.problem);
    }
    this.changed();
  }

  send(room, text) {
    const { id: from, name } = this.model.me;
    this.#add({ id: uuid(), room, from, name, text, createdAt: new Date().toISOString(), local: ++this.#local });
  }

  retry(message) {
    this.#add(message);
  }

  /** The network is back: no need to sit out a pause. */
  hurry() {
    this.#wake?.();
  }
  #wake = null;

  #add(message) {
    const pending = { ...message, state: "pending", problem: undefined, since: Date.now() };
    const room = this.model.rooms.get(message.room);
    if (room?.byKey.get(keyOf(message))?.state === "sent") return;
    room?.byKey.set(keyOf(message), pending);
    this.#failed.delete(keyOf(message));
    this.#queue.push(pending);
    this.#keep();
    this.changed();
    this.#run();
  }

  async #run() {
    if (this.#busy) return;
    this.#busy = true;
    for (let message; (message = this.#queue[0]); ) {
      await this.#deliver(message);
      this.#queue.shift();
      this.#keep();
      this.changed();
    }
    this.#busy = false;
  }

  /** The same id each time: the backend stores it once, however often it gets it. */
  async #deliver(message) {
    for (let pause = 500; ; pause = Math.min(2 * pause, 8_000)) {
      try {
        this.model.confirm(await api.send(message.room, message));
        return;
      } catch (error) {
        if (error.status === 401) this.signedOut();
        if (!error.passing || Date.now() - message.since > GIVE_UP) return this.#fail(message, error.message);
      }
      // An event may have told us meanwhile that it arrived.
      if (this.#known(message)?.state === "sent") return;
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, pause * (0.5 + Math.random() / 2));
      });
    }
  }

  #fail(message, problem) {
    if (this.#known(message)?.state === "sent") return;
    const failed = { ...message, state: "failed", problem };
    this.#failed.set(keyOf(message), failed);
    this.model.rooms.get(message.room)?.byKey.set(keyOf(message), failed);
  }

  #known(message) {
    return this.model.rooms.get(message.room)?.byKey.get(keyOf(message));
  }

  #keep() {
    sessionStorage.setItem(KEY, JSON.stringify([...this.#failed.values(), ...this.#queue]));
  }
}

/** crypto.randomUUID is missing where the page comes over plain http from another machine. */
function uuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}
