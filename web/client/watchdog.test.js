// Silence, sleep and waking up.

import assert from "node:assert/strict";
import { test } from "node:test";
import { events, setup, welcome } from "./testing.js";

test("it pings when nothing came for pingInterval, and not before", async () => {
  const w = setup();
  const s = await w.join({ pingInterval: 20_000 });
  await w.clock.advance(15_000);
  await s.say(events([1, "e1"]));
  await w.clock.advance(15_000);
  assert.equal(s.of("ping").length, 0);
  await w.clock.advance(5_000);
  assert.equal(s.of("ping").length, 1);
  await s.say({ type: "pong" });
  await w.clock.advance(19_000);
  assert.equal(s.of("ping").length, 1);
  assert.equal(w.client.state, "open");
});

test("a black-holed connection is noticed within 35 s, and not waited for", async () => {
  const w = setup();
  const s = await w.join({ pingInterval: 25_000 });
  await w.clock.advance(34_999);
  assert.equal(w.client.state, "open");
  await w.clock.advance(1);
  assert.equal(w.client.state, "waiting");
  assert.equal(s.closed.code, 4000);
  await s.say(events([1, "late"]));
  assert.deepEqual(w.log, [], "an old socket is deaf");
});

test("any frame answers a ping", async () => {
  const w = setup();
  const s = await w.join();
  await w.clock.advance(25_000);
  await s.say(events([1, "e1"]));
  await w.clock.advance(20_000);
  assert.equal(w.client.state, "open");
});

test("TestCase_F07: fifteen minutes hidden with one timer a minute: no needless reconnect", async () => {
  const w = setup();
  const s = await w.join();
  let answered = 0;
  for (let minute = 0; minute < 15; minute++) {
    await w.clock.jump(60_000);
    // The answer to a ping comes at once; only timers are slow.
    while (answered < s.of("ping").length) {
      answered++;
      await s.say({ type: "pong" });
    }
    await s.say(events([minute + 1, `e${minute}`]));
    assert.deepEqual(s.acks.at(-1), [1, minute + 1], "acks need no timer");
  }
  await w.page.show();
  await s.say({ type: "pong" });
  await w.clock.advance(10_000);
  assert.equal(w.sockets.length, 1);
  assert.equal(w.client.state, "open");
});

test("TestCase_F07: silently dead, then woken: back within 5 s", async () => {
  const w = setup();
  const s = await w.join({ seq: 2, id: "e2" });
  w.clock.time += 8 * 3_600_000; // asleep: no timer ran
  await w.page.show();
  const woke = w.clock.time;
  await w.clock.advance(3_000);
  assert.equal(w.sockets.length, 2, "without a pause");
  await w.last.open();
  assert.deepEqual(w.last.hello.resume, { epoch: "E1", seq: 2, id: "e2" });
  await w.last.say(welcome({ seq: 2, id: "e2", recovered: true }));
  assert.ok(w.clock.time - woke < 5_000);
  assert.ok(s.closed);
});

test("woken and alive: one ping, no reconnect, and a later loss is not hurried", async () => {
  const w = setup();
  const s = await w.join();
  await w.page.show();
  assert.equal(s.of("ping").length, 1);
  await s.say({ type: "pong" });
  await w.clock.advance(5_000);
  assert.equal(w.client.state, "open");
  await s.die(1006);
  assert.equal(w.client.state, "waiting");
});

test("a timer that comes late asks once more before it believes in silence", async () => {
  const w = setup();
  const s = await w.join();
  await w.clock.advance(25_000);
  await w.clock.jump(3_600_000); // slept while the ping was out
  assert.equal(w.client.state, "open");
  assert.equal(s.of("ping").length, 2);
  await w.clock.advance(10_000);
  assert.equal(w.client.state, "waiting");
});

test("online or visible while waiting: at once", async () => {
  const w = setup();
  const s = await w.join();
  for (const wake of [() => w.page.online(), () => w.page.show()]) {
    await w.last.die();
    assert.equal(w.client.state, "waiting");
    const before = w.sockets.length;
    await wake();
    assert.equal(w.sockets.length, before + 1);
    await w.last.open();
    await w.last.say(welcome({ recovered: true }));
  }
  assert.ok(s.closed);
});

test("online while a dial hangs: a new one", async () => {
  const w = setup();
  w.client.connect();
  await w.clock.advance(5_000);
  assert.equal(w.sockets.length, 1);
  await w.page.online();
  assert.equal(w.sockets.length, 2);
  assert.ok(w.sockets[0].closed);
});

test("a clock set back does not stop the watch", async () => {
  const w = setup();
  const s = await w.join();
  w.clock.time -= 3_600_000;
  await w.clock.advance(25_000 + 3_600_000);
  assert.ok(s.of("ping").length >= 1);
});
