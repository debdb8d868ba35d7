// Positions, duplicates, acks and reloads: "The client's half" of the design.

import assert from "node:assert/strict";
import { test } from "node:test";
import { events, gate, settle, setup, welcome } from "./testing.js";

test("hello, welcome, events, ack: the plain way", async () => {
  const w = setup();
  const s = await w.join({ seq: 4, id: "e4" });
  assert.deepEqual(s.hello, { type: "hello", token: "t1", acks: true });
  assert.equal(s.protocol, "lastmile.v1");
  assert.deepEqual(s.acks, [[1, 4]], "the welcome's own seq is acked");
  await s.say(events([5, "e5"], [6, "e6"]), events([7, "e7"]));
  assert.deepEqual(w.log, ["e5", "e6", "e7"]);
  assert.deepEqual(s.acks, [[1, 4], [1, 6], [1, 7]], "one ack a frame");
  assert.deepEqual(w.client.position, { epoch: "E1", seq: 7, id: "e7" });
  assert.deepEqual(w.states, ["connecting", "open"]);
  assert.deepEqual(w.errors, []);
});

test("an event is acked when its async listener is done, the next one handed over only then", async () => {
  const w = setup({ quiet: true });
  const gates = { e1: gate(), e2: gate() };
  w.client.addEventListener("event", async (e) => {
    w.log.push(e.event.id);
    await gates[e.event.id].promise;
  });
  const s = await w.join();
  await s.say(events([1, "e1"], [2, "e2"]));
  assert.deepEqual(w.log, ["e1"]);
  assert.deepEqual(s.acks, [[1, 0]]);
  await w.clock.advance(1_500);
  gates.e1.open();
  await settle();
  assert.deepEqual(w.log, ["e1", "e2"]);
  assert.deepEqual(s.acks, [[1, 0], [1, 1]], "a slow frame is acked in parts, before the server loses patience");
  gates.e2.open();
  await settle();
  assert.deepEqual(s.acks.at(-1), [1, 2]);
});

test("waitUntil holds the ack; called late it is an error", async () => {
  const w = setup({ quiet: true });
  const g = gate();
  let kept;
  w.client.addEventListener("event", (e) => { kept = e; e.waitUntil(g.promise); });
  const s = await w.join();
  await s.say(events([1, "e1"]));
  assert.deepEqual(s.acks, [[1, 0]]);
  g.open();
  await settle();
  assert.deepEqual(s.acks, [[1, 0], [1, 1]]);
  assert.throws(() => kept.waitUntil(Promise.resolve()), /while the listener runs/);
});

test("a listener that throws, or rejects, raises error and counts as handled", async () => {
  const w = setup({ quiet: true });
  w.client.addEventListener("event", (e) => { if (e.event.id === "e1") throw new Error("boom"); });
  w.client.addEventListener("event", async (e) => { if (e.event.id === "e2") throw new Error("bang"); });
  const s = await w.join();
  await s.say(events([1, "e1"], [2, "e2"], [3, "e3"]));
  assert.deepEqual(w.errors.map((e) => e.error.cause.message), ["boom", "bang"]);
  assert.ok(w.errors.every((e) => e.error.code === "handler" && !e.terminal));
  assert.deepEqual(s.acks.at(-1), [1, 3]);
});

test("a removed listener is removed, one added twice runs once", async () => {
  const w = setup({ quiet: true });
  const seen = [];
  const listener = (e) => void seen.push(e.event.id);
  w.client.addEventListener("event", listener);
  w.client.addEventListener("event", listener);
  const s = await w.join();
  await s.say(events([1, "e1"]));
  w.client.removeEventListener("event", listener);
  await s.say(events([2, "e2"]));
  assert.deepEqual(seen, ["e1"]);
});

test("ephemeral events are shown once and move nothing", async () => {
  const w = setup();
  const s = await w.join({ seq: 3, id: "e3" });
  await s.say(events("x1"), events("x1"));
  assert.deepEqual(w.log, ["x1"]);
  assert.deepEqual(s.acks, [[1, 3]]);
  assert.deepEqual(w.client.position, { epoch: "E1", seq: 3, id: "e3" });
});

test("a flood of ephemeral events pushes no other id out", async () => {
  const w = setup();
  const s = await w.join();
  await s.say(events([1, "e1"]));
  for (let i = 0; i < 5_000; i++) await s.say(events(`x${i}`));
  await s.say(welcome({ n: 2, epoch: "E2", recovered: true }), events([1, "e1"], [2, "e2"]));
  assert.deepEqual(w.log.filter((id) => id.startsWith("e")), ["e1", "e2"]);
  assert.deepEqual(s.acks.at(-1), [2, 2]);
});

test("TestCase_F02: replayed events move the position: replay sizes 3, 0, 0", async () => {
  const w = setup();
  const s1 = await w.join({ seq: 1, id: "e1" });
  await s1.die();
  const s2 = await w.rejoin();
  assert.deepEqual(s2.hello.resume, { epoch: "E1", seq: 1, id: "e1" });
  await s2.say(welcome({ seq: 1, id: "e1", recovered: true }), events([2, "e2"], [3, "e3"], [4, "e4"]));
  assert.deepEqual(s2.acks, [[1, 1], [1, 4]]);
  for (let i = 0; i < 2; i++) {
    await w.last.die();
    const s = await w.rejoin();
    assert.deepEqual(s.hello.resume, { epoch: "E1", seq: 4, id: "e4" });
    await s.say(welcome({ seq: 4, id: "e4", recovered: true }));
  }
  assert.deepEqual(w.log, ["e2", "e3", "e4"]);
});

test("TestCase_F04: a server whose seqs begin anew is believed, without a reconnect", async () => {
  const w = setup();
  const s1 = await w.join({ seq: 90, id: "e90" });
  await s1.die();
  const s2 = await w.rejoin({ epoch: "E2", seq: 0 });
  await s2.say(events([1, "f1"], [2, "f2"]));
  assert.deepEqual(w.log, ["f1", "f2"]);
  assert.deepEqual(s2.acks, [[1, 0], [1, 2]]);
  await w.clock.advance(20_000);
  assert.equal(w.sockets.length, 2);
});

test("an id seen before is dropped and acked, also under another epoch and seq", async () => {
  const w = setup();
  const s = await w.join();
  await s.say(events([1, "e1"], [2, "e2"]));
  await s.say(welcome({ n: 2, epoch: "E2", seq: 0, recovered: true }), events([1, "e2"], [2, "e1"], [3, "e3"]));
  assert.deepEqual(w.log, ["e1", "e2", "e3"]);
  assert.deepEqual(s.acks.slice(-2), [[2, 0], [2, 3]]);
  assert.deepEqual(w.client.position, { epoch: "E2", seq: 3, id: "e3" });
});

test("a seq at or below the position is dropped, whatever its id", async () => {
  const w = setup();
  const s = await w.join({ seq: 5, id: "e5" });
  await s.say(events([5, "other"], [6, "e6"]));
  assert.deepEqual(w.log, ["e6"]);
});

test("at least 1,024 ids are remembered, and not without end", async () => {
  const w = setup();
  const s = await w.join();
  for (let i = 1; i <= 4_000; i++) await s.say(events([i, `e${i}`]));
  await s.say(welcome({ n: 2, epoch: "E2", recovered: true }));
  for (let i = 1; i <= 1_024; i++) await s.say(events([i, `e${4_000 - 1_024 + i}`]));
  assert.equal(w.log.length, 4_000);
  await s.say(events([1_025, "e1"]));
  assert.equal(w.log.length, 4_001, "an id of long ago is forgotten");
});

test("a replayed event whose first listener still runs waits for it", async () => {
  const w = setup({ quiet: true });
  const g = gate();
  w.client.addEventListener("event", (e) => {
    w.log.push(e.event.id);
    if (e.event.id === "e1") e.waitUntil(g.promise);
  });
  const s1 = await w.join();
  await s1.say(events([1, "e1"]));
  await s1.die();
  const s2 = await w.rejoin({ recovered: true });
  assert.deepEqual(s2.hello.resume, { epoch: "E1", seq: 0, id: "" }, "not handled, so not passed");
  await s2.say(events([1, "e1"], [2, "e2"]));
  assert.deepEqual(w.log, ["e1"]);
  assert.deepEqual(s2.acks, []);
  g.open();
  await settle();
  assert.deepEqual(w.log, ["e1", "e2"]);
  assert.deepEqual(s2.acks, [[1, 0], [1, 2]]);
});

test("a listener that ends after its connection neither acks nor moves the position", async () => {
  const w = setup({ quiet: true });
  const g = gate();
  w.client.addEventListener("event", (e) => e.waitUntil(g.promise));
  const s1 = await w.join();
  await s1.say(events([1, "e1"]));
  await s1.die();
  g.open();
  await settle();
  assert.deepEqual(s1.acks, [[1, 0]]);
  const s2 = await w.rejoin();
  assert.deepEqual(s2.hello.resume, { epoch: "E1", seq: 0, id: "" });
  await s2.say(welcome({ recovered: true }), events([1, "e1"]));
  assert.deepEqual(s2.acks, [[1, 0], [1, 1]], "acked where it was dropped as known");
});

test("TestTrace_T31: acks name the welcome they came after", async () => {
  const w = setup({ quiet: true });
  const g = gate();
  w.client.addEventListener("event", (e) => { if (e.event.id === "e1") e.waitUntil(g.promise); });
  const s = await w.join();
  await s.say(events([1, "e1"]), welcome({ n: 2, epoch: "E2", recovered: true }), events([1, "e2"]));
  assert.deepEqual(s.acks, [[1, 0]]);
  g.open();
  await settle();
  assert.deepEqual(s.acks, [[1, 0], [1, 1], [2, 0], [2, 1]], "e1 under welcome 1, e2 under welcome 2");
});

test("TestTrace_T33: an in-band welcome that was not recovered is a reload of its own", async () => {
  const w = setup();
  const loads = [];
  w.client.addEventListener("resync", (e) => { const g = gate(); loads.push(g); e.waitUntil(g.promise); });
  const s = await w.join({ seq: 3, id: "e3" });
  await s.say(welcome({ n: 2, epoch: "E2", seq: 0 }), events([1, "f1"]));
  assert.equal(loads.length, 2);
  loads[0].open();
  await settle();
  assert.deepEqual(s.acks, [], "the first load does not answer for the second welcome");
  await s.say(events([2, "f2"]));
  assert.deepEqual(w.log, ["f1", "f2"], "events go on meanwhile");
  loads[1].open();
  await settle();
  assert.deepEqual(s.acks, [[2, 2]]);
});

test("TestTrace_T45: the socket drops in mid-reload: no resume, no ack, a reload of its own", async () => {
  const w = setup();
  const loads = [];
  w.client.addEventListener("resync", (e) => { const g = gate(); loads.push(g); e.waitUntil(g.promise); });
  const s1 = await w.join({ seq: 5, id: "e5" });
  await s1.die();
  const s2 = await w.rejoin();
  assert.equal(s2.hello.resume, undefined);
  await s2.say(welcome({ seq: 6, id: "e6" }), events([7, "e7"]));
  assert.equal(loads.length, 2);
  loads[0].open();
  await settle();
  assert.deepEqual([s1.acks, s2.acks], [[], []]);
  loads[1].open();
  await settle();
  assert.deepEqual(s2.acks, [[1, 7]]);
  await s2.die();
  const s3 = await w.rejoin();
  assert.deepEqual(s3.hello.resume, { epoch: "E1", seq: 7, id: "e7" });
});

test("a reload that ends between two connections lets the next one resume", async () => {
  const w = setup();
  const g = gate();
  w.client.addEventListener("resync", (e) => e.waitUntil(g.promise));
  const s1 = await w.join({ seq: 5, id: "e5" });
  await s1.say(events([6, "e6"]));
  await s1.die();
  g.open();
  const s2 = await w.rejoin();
  assert.deepEqual(s2.hello.resume, { epoch: "E1", seq: 6, id: "e6" });
  assert.deepEqual(s1.acks, []);
});

test("TestTrace_T52: what is handled during the load is acked after it", async () => {
  const w = setup();
  const g = gate();
  w.client.addEventListener("resync", (e) => e.waitUntil(g.promise));
  const s = await w.join({ seq: 5, id: "e5" });
  await s.say(events([6, "e6"]));
  assert.deepEqual(w.log, ["e6"]);
  await w.clock.advance(15_000);
  assert.deepEqual(s.acks, []);
  g.open();
  await settle();
  assert.deepEqual(s.acks, [[1, 6]]);
});

test("the welcome is taken from the queue: a position of before does not come back", async () => {
  const w = setup({ quiet: true });
  const g = gate();
  w.client.addEventListener("event", (e) => e.waitUntil(g.promise));
  const resyncs = [];
  w.client.addEventListener("resync", () => void resyncs.push(w.client.position));
  const s = await w.join();
  await s.say(events([1, "e1"]), welcome({ n: 2, epoch: "E2", seq: 40, id: "f40" }));
  assert.equal(resyncs.length, 1, "the second waits for the listener of e1");
  g.open();
  await settle();
  assert.deepEqual(resyncs[1], { epoch: "E2", seq: 40, id: "f40" });
  assert.deepEqual(w.client.position, { epoch: "E2", seq: 40, id: "f40" });
});

test("TestTrace_T59: a reload that fails acks nothing and is asked for again", async () => {
  const w = setup();
  const attempts = [];
  w.client.addEventListener("resync", async (e) => {
    attempts.push(e.attempt);
    if (e.attempt < 3) throw new Error("backend away");
  });
  const s = await w.join({ seq: 5, id: "e5" });
  assert.deepEqual([attempts, s.acks], [[1], []]);
  await w.clock.advance(1_000);
  assert.deepEqual([attempts, s.acks], [[1, 2], []]);
  await w.clock.advance(2_000);
  assert.deepEqual([attempts, s.acks], [[1, 2, 3], [[1, 5]]]);
  assert.equal(w.errors.length, 2);
});

test("an unreadable frame ends the connection: skipping it could skip events", async () => {
  for (const bad of ["{", "null", '{"type":"events"}', '{"type":"events","events":[{"seq":2}]}', '{"type":"welcome"}']) {
    const w = setup();
    const s1 = await w.join({ seq: 1, id: "e1" });
    await s1.say(bad, events([3, "e3"]));
    assert.deepEqual(w.log, [], bad);
    assert.equal(w.errors[0].error.code, "bad_frame");
    assert.equal(s1.closed.code, 4000);
    const s2 = await w.rejoin();
    assert.deepEqual(s2.hello.resume, { epoch: "E1", seq: 1, id: "e1" });
  }
});

test("unknown frame types and fields are ignored", async () => {
  const w = setup();
  const s = await w.join();
  await s.say({ type: "novelty", x: 1 }, { ...events([1, "e1"]), extra: true });
  assert.deepEqual(w.log, ["e1"]);
  assert.deepEqual(w.errors, []);
});

test("a reload that failed is asked for again, also when a hand-over took the connection on which it was owed", async () => {
  const w = setup();
  const attempts = [];
  const old = await w.join({ seq: 1, id: "e1" });
  w.client.addEventListener("resync", async (e) => {
    attempts.push(e.attempt);
    if (attempts.length === 1) throw new Error("503");
  });
  w.client.addEventListener("error", () => {});
  await old.say({ type: "goaway", reconnectAfter: 0, reason: "drain" });
  await w.clock.advance(10);
  const fresh = w.last;
  await fresh.open();
  assert.deepEqual(fresh.hello.resume, { epoch: "E1", seq: 1, id: "e1" });
  await old.say(welcome({ n: 2, epoch: "E2", seq: 0, id: "" }));
  await fresh.say(welcome({ instance: "b-000000000000", epoch: "E1", seq: 1, id: "e1", recovered: true }));
  assert.deepEqual(fresh.acks, [], "nobody has loaded what old asked for");
  await w.clock.advance(5_000);
  assert.deepEqual(attempts, [1, 2]);
  assert.deepEqual(fresh.acks, [[1, 1]]);
});
