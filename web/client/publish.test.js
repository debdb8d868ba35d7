// Events on their way into the outbox.

import assert from "node:assert/strict";
import { test } from "node:test";
import { uuid } from "./publisher.js";
import { setup, settle, welcome } from "./testing.js";

const hello = { to: ["bob"], type: "chat.message", data: { text: "hello" } };

test("resolves with the id when it is published", async () => {
  const w = setup();
  const s = await w.join();
  const done = w.client.publish(hello);
  const [frame] = s.of("publish");
  assert.match(frame.event.id, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.deepEqual({ ...frame.event, id: undefined }, { ...hello, id: undefined });
  await s.say({ type: "published", ref: frame.ref, id: frame.event.id });
  assert.equal(await done, frame.event.id);
});

test("TestCase_F12: sent into a dying socket, it is sent again under the same id, and settled once", async () => {
  const w = setup();
  const s1 = await w.join();
  let settled = 0;
  const done = w.client.publish(hello).finally(() => settled++);
  await w.clock.advance(40_000); // black hole
  assert.equal(settled, 0);
  const s2 = await w.rejoin({ recovered: true });
  const [first, second] = [s1.of("publish")[0], s2.of("publish")[0]];
  assert.deepEqual(second, first);
  await s2.say({ type: "published", ref: second.ref, id: second.event.id }, { type: "published", ref: second.ref, id: second.event.id });
  assert.equal(await done, first.event.id);
  assert.equal(settled, 1);
  await s2.die();
  const s3 = await w.rejoin({ recovered: true });
  assert.equal(s3.of("publish").length, 0);
});

test("published before connecting it waits for the welcome, and keeps its order", async () => {
  const w = setup();
  const all = [1, 2, 3].map((n) => w.client.publish({ ...hello, data: { n } }));
  const s = await w.join();
  assert.deepEqual(s.sent.map((f) => f.type).slice(0, 1), ["hello"]);
  assert.deepEqual(s.of("publish").map((f) => f.event.data.n), [1, 2, 3]);
  for (const f of s.of("publish")) await s.say({ type: "published", ref: f.ref, id: f.event.id });
  await Promise.all(all);
});

test("an in-band welcome sends nothing again", async () => {
  const w = setup();
  const s = await w.join();
  void w.client.publish(hello);
  await s.say(welcome({ n: 2, recovered: true }));
  assert.equal(s.of("publish").length, 1);
});

test("refused: rejected with the server's code", async () => {
  const w = setup();
  const s = await w.join();
  const done = w.client.publish(hello);
  const refused = assert.rejects(done, { name: "ClientError", code: "not_allowed", message: "no" });
  await s.say({ type: "error", ref: s.of("publish")[0].ref, code: "not_allowed", message: "no" });
  await refused;
  assert.deepEqual(w.errors, [], "told once");
});

test("unavailable: tried again on the same connection, and given up at last", async () => {
  const w = setup();
  const s = await w.join();
  const done = w.client.publish(hello);
  const gaveUp = assert.rejects(done, { code: "unavailable", message: "gave up" });
  for (let i = 1; i <= 5; i++) {
    assert.equal(s.of("publish").length, i);
    await s.say({ type: "error", ref: "1", code: "unavailable", message: "try again" });
    await w.clock.advance(32_000);
    await s.say({ type: "pong" });
  }
  await gaveUp;
  assert.equal(new Set(s.of("publish").map((f) => f.event.id)).size, 1);
});

test("TestCase_C02: too large for the server is refused here, without a reconnect; the next one passes", async () => {
  const w = setup();
  const s = await w.join({ maxFrame: 32_768 });
  await assert.rejects(w.client.publish({ ...hello, data: { text: "x".repeat(40_000) } }), { code: "too_large" });
  await assert.rejects(w.client.publish({ ...hello, data: { text: "é".repeat(17_000) } }), { code: "too_large" }, "bytes, not characters");
  void w.client.publish(hello);
  assert.equal(s.of("publish").length, 1);
  assert.equal(w.sockets.length, 1);
});

test("a frame that kills every connection is given up after five", async () => {
  const w = setup();
  await w.join();
  const done = w.client.publish(hello);
  const gaveUp = assert.rejects(done, { code: "unavailable" });
  for (let i = 0; i < 5; i++) {
    await w.last.die(1009);
    await w.rejoin({ recovered: true });
  }
  await gaveUp;
  assert.equal(w.last.of("publish").length, 0);
});

test("ephemeral events are not kept for later", async () => {
  const w = setup();
  const mark = { ...hello, ephemeral: true };
  await assert.rejects(w.client.publish(mark), { code: "unavailable" });
  const s = await w.join();
  const lost = assert.rejects(w.client.publish(mark), { code: "unavailable" });
  await s.die();
  await lost;
});

test("an abort gives up waiting, close rejects what is left", async () => {
  const w = setup();
  const s = await w.join();
  const abort = new AbortController();
  const aborted = assert.rejects(w.client.publish(hello, { signal: abort.signal }), { name: "AbortError" });
  const closed = assert.rejects(w.client.publish(hello), { code: 1000 });
  abort.abort();
  await aborted;
  w.client.close();
  await closed;
  await assert.rejects(w.client.publish(hello), { code: 1000 });
  assert.equal(s.of("publish").length, 2);
});

test("a listener may wait for its own publish", async () => {
  const w = setup({ quiet: true });
  const s = await w.join();
  w.client.addEventListener("event", async () => { await w.client.publish(hello); });
  await s.say({ type: "events", events: [{ seq: 1, event: { id: "e1" } }] });
  const [frame] = s.of("publish");
  await s.say({ type: "published", ref: frame.ref, id: frame.event.id });
  await settle();
  assert.deepEqual(s.acks.at(-1), [1, 1]);
});

test("error frames without ref raise error; the connection stays", async () => {
  const w = setup();
  const s = await w.join();
  await s.say({ type: "error", code: "bad_ack", message: "above sent" });
  assert.deepEqual(w.errors.map((e) => [e.error.code, e.terminal]), [["bad_ack", false]]);
  assert.equal(w.client.state, "open");
});

test("uuids are lower case and differ", () => {
  assert.equal(new Set(Array.from({ length: 1_000 }, uuid)).size, 1_000);
});
