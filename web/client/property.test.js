// The client's half of the promise under histories that nobody thought of: a server that follows the
// protocol, with drops, half-open connections, epochs that end, slow and failing listeners and loads.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setup, settle, welcome } from "./testing.js";

/** A small generator, so that a seed names a history (mulberry32). */
function randomOf(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}

async function history(seed) {
  const random = randomOf(seed);
  const chance = (p) => random() < p;
  const w = setup({ quiet: true });
  w.random = random;
  const all = []; // ids in the order of their commit
  const handed = [];
  const shown = new Set();
  const done = new Set(); // handled to the end, or loaded
  let epoch = 1;
  let log = []; // of this epoch

  const pause = (ms) => new Promise((resolve) => w.clock.setTimeout(resolve, ms));
  w.client.addEventListener("event", async ({ event: { id } }) => {
    handed.push(id);
    shown.add(id);
    if (chance(0.5)) await pause(random() * 400);
    done.add(id);
    if (chance(0.1)) throw new Error("listener");
  });
  w.client.addEventListener("resync", async () => {
    const loaded = [...all];
    if (chance(0.7)) await pause(random() * 3_000);
    if (chance(0.2)) throw new Error("load");
    for (const id of loaded) shown.add(id), done.add(id);
  });

  const frame = (from) => ({ type: "events", events: log.slice(from).map((id, i) => ({ seq: from + i + 1, event: { id } })) });
  /** The server's side of one socket. */
  const accept = async (s) => {
    if (s.accepted || !s.hello || s.closed) return;
    s.accepted = true;
    const r = s.hello.resume;
    const known = r && r.epoch === `E${epoch}` && (r.seq === 0 ? r.id === "" : log[r.seq - 1] === r.id);
    s.n = 1;
    const at = known ? r.seq : log.length;
    await s.say(welcome({ epoch: `E${epoch}`, seq: at, id: at ? log[at - 1] : "", recovered: Boolean(known), reconnectWithin: 500 }));
    if (known && log.length > at) await s.say(frame(at));
    s.seen = 0;
  };
  /** No ack covers what the application is not done with. */
  const check = () => {
    for (const s of w.sockets) {
      const acks = s.of("ack");
      for (; s.accepted && s.seen < acks.length; s.seen++) {
        const ack = acks[s.seen];
        if (ack.n !== s.n) continue; // the server ignores it
        for (const id of log.slice(0, ack.seq)) assert.ok(done.has(id), `seed ${seed}: ${id} was acked before it was handled`);
      }
    }
  };

  w.client.connect();
  await settle();
  for (let step = 0; step < 120; step++) {
    const s = w.last;
    const live = s.accepted && !s.closed && !s.dropped;
    if (!s.opened && !s.closed) {
      s.opened = true;
      await s.open();
      if (chance(0.85)) await accept(s);
      else s.dropped = true, await s.die();
    } else if (chance(0.45)) {
      const from = log.length;
      for (let i = 0; i < 1 + random() * 4; i++) {
        all.push(`e${all.length}`);
        log.push(all.at(-1));
      }
      if (live && !s.halfOpen) await s.say(frame(from));
    } else if (live && chance(0.2)) {
      s.dropped = true;
      await s.die();
    } else if (live && chance(0.1)) {
      s.halfOpen = true;
    } else if (live && !s.halfOpen && chance(0.15)) {
      // Re-home: what it had is over, told on the same connection.
      epoch++;
      log = [];
      await s.say(welcome({ n: ++s.n, epoch: `E${epoch}`, seq: 0, id: "", reconnectWithin: 500 }));
    } else if (live && !s.halfOpen && chance(0.2)) {
      await s.say({ type: "goaway", reconnectAfter: 100, reason: "drain" });
    }
    if (live && !s.halfOpen) await s.say({ type: "pong" });
    check();
    await w.clock.advance(random() * 1_500);
    check();
  }
  // Quiet at last: everybody gets there.
  for (let i = 0; i < 120; i++) {
    const s = w.last;
    if (!s.opened && !s.closed) {
      s.opened = true;
      await s.open();
      await accept(s);
    }
    if (s.accepted && !s.halfOpen && !s.dropped) await s.say({ type: "pong" });
    await w.clock.advance(1_000);
    check();
  }
  const missing = all.filter((id) => !shown.has(id));
  assert.deepEqual(missing, [], `seed ${seed}: lost`);
  assert.equal(new Set(handed).size, handed.length, `seed ${seed}: handed over twice`);
  const order = handed.map((id) => Number(id.slice(1)));
  assert.deepEqual(order, [...order].sort((a, b) => a - b), `seed ${seed}: out of order`);
  assert.equal(w.client.state, "open");
  const last = w.last.of("ack").at(-1);
  assert.deepEqual([last.n, last.seq], [w.last.n, log.length], `seed ${seed}: something is never acked`);
  w.client.close();
  return { handed: handed.length, sockets: w.sockets.length, epoch };
}

test("no event lost, doubled or out of order, none acked before it is handled: 80 random histories", async () => {
  const sum = { handed: 0, sockets: 0, epoch: 0 };
  for (let seed = 1; seed <= 80; seed++) {
    const got = await history(seed);
    for (const key of Object.keys(sum)) sum[key] += got[key];
  }
  // The histories are worth something: events live, reconnects, ends of epochs.
  assert.ok(sum.handed > 3_000 && sum.sockets > 800 && sum.epoch > 200, JSON.stringify(sum));
});
