// When and where the client connects again.

import assert from "node:assert/strict";
import { test } from "node:test";
import { CloseCode } from "./codes.js";
import { FakeClock, events, settle, setup, welcome } from "./testing.js";

/** The time from now to the next dial. */
async function untilDial(w, step = 50) {
  const before = w.sockets.length;
  const from = w.clock.time;
  while (w.sockets.length === before && w.clock.time - from < 120_000) await w.clock.advance(step);
  return w.clock.time - from;
}

test("the first attempt comes after a random part of reconnectWithin, the next with full jitter to 30 s", async () => {
  const w = setup();
  w.random = 0.999;
  const s = await w.join({ reconnectWithin: 2_000 });
  await s.die();
  const waits = [];
  for (let i = 0; i < 7; i++) {
    waits.push(await untilDial(w));
    await w.last.die();
  }
  assert.deepEqual(waits, [2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
  w.random = 0;
  assert.equal(await untilDial(w), 30_000, "drawn before");
  await w.last.die();
  assert.equal(await untilDial(w), 100, "never at once again and again");
});

test("without a welcome yet: within 4 s", async () => {
  const w = setup();
  w.random = 0.999;
  w.client.connect();
  await settle();
  await w.last.die();
  assert.equal(await untilDial(w), 4_000);
});

test("back to the beginning only after 30 s open", async () => {
  const w = setup();
  w.random = 0.999;
  const s1 = await w.join({ reconnectWithin: 1_000 });
  await s1.die();
  assert.equal(await untilDial(w), 1_000);
  await w.last.open();
  await w.last.say(welcome({ reconnectWithin: 1_000 }));
  await w.last.die();
  assert.equal(await untilDial(w), 2_000, "it held for no time");
  await w.last.open();
  await w.last.say(welcome({ reconnectWithin: 1_000, pingInterval: 60_000 }));
  await w.clock.advance(30_000);
  await w.last.die();
  assert.equal(await untilDial(w), 1_000);
});

test("TestCase_C27: 500 clients of a dead server come back spread", async () => {
  const clock = new FakeClock();
  const dials = [];
  const worlds = Array.from({ length: 500 }, () => setup({ clock }));
  for (const w of worlds) {
    w.random = Math.random;
    await w.join({ reconnectWithin: 4_000 });
  }
  const start = clock.time;
  for (const w of worlds) void w.last.die();
  await clock.advance(10);
  for (let t = 0; t < 60; t++) {
    await clock.advance(1_000);
    for (const w of worlds) {
      if (w.sockets.length === 2 && !w.counted) {
        w.counted = true;
        dials.push(Math.floor((clock.time - start) / 1_000));
        await w.last.open();
        await w.last.say(welcome({ recovered: true, pingInterval: 600_000 }));
      }
    }
  }
  const perSecond = new Map();
  for (const t of dials) perSecond.set(t, (perSecond.get(t) ?? 0) + 1);
  assert.equal(dials.length, 500);
  assert.ok(perSecond.size >= 3, `spread over ${perSecond.size} s`);
  assert.ok(Math.max(...perSecond.values()) <= 500 * 0.35, `at most ${Math.max(...perSecond.values())} in a second`);
  assert.ok(worlds.every((w) => w.client.state === "open"));
});

test("close codes from 4500 on are the end: error, closed, no further attempt", async () => {
  for (const code of [CloseCode.BAD_TOKEN, CloseCode.KICKED, CloseCode.TOO_MANY_SESSIONS, 4501, 4502, 4503, 4999]) {
    const w = setup();
    const s = await w.join();
    const publish = w.client.publish({ to: ["x"], type: "t" });
    const refused = assert.rejects(publish, { code });
    await s.die(code, "fixed string");
    assert.equal(w.client.state, "closed");
    assert.deepEqual(w.errors.map((e) => [e.error.code, e.terminal]), [[code, true]]);
    await w.clock.advance(120_000);
    assert.equal(w.sockets.length, 1);
    assert.equal(w.clock.pending, 0, "no timer is left");
    await refused;
  }
});

test("any other close code reconnects", async () => {
  for (const code of [1000, 1001, 1006, 1007, 1008, 1009, 1011, 1012, 1013, 4000, 4001, 4003, 4004, 4499, 5000]) {
    const w = setup();
    const s = await w.join();
    await s.die(code);
    assert.equal(w.client.state, "waiting", String(code));
    await w.rejoin({ recovered: true });
    assert.equal(w.client.state, "open");
  }
});

test("the kept token serves for a reconnect; 4002 gets a fresh one first", async () => {
  const w = setup();
  const s = await w.join();
  w.token = "t2";
  await s.die(1006);
  const s2 = await w.rejoin({ recovered: true });
  assert.equal(s2.hello.token, "t1");
  await s2.die(CloseCode.TOKEN_EXPIRED);
  const s3 = await w.rejoin({ recovered: true });
  assert.equal(s3.hello.token, "t2");
});

test("TestCase_C28: a dead credential ends after three attempts, an unreachable server does not", async () => {
  const w = setup();
  w.client.connect();
  await settle();
  for (let i = 0; i < 2; i++) {
    await w.last.open();
    await w.last.die(CloseCode.TOKEN_EXPIRED);
    assert.equal(w.client.state, "waiting");
    await untilDial(w);
  }
  await w.last.open();
  await w.last.die(CloseCode.TOKEN_EXPIRED);
  assert.equal(w.client.state, "closed");
  assert.equal(w.sockets.length, 3);
  assert.deepEqual(w.errors.map((e) => [e.error.code, e.terminal]), [[4002, true]]);

  const other = setup();
  other.client.connect();
  await settle();
  for (let i = 0; i < 20; i++) {
    await other.last.die(1006);
    await untilDial(other);
  }
  assert.equal(other.sockets.length, 21);
  assert.deepEqual(other.errors, []);
});

test("getToken: null means sign in again; a failure is tried again; an answer that never comes too", async () => {
  const none = setup({ client: { getToken: async () => null } });
  none.client.connect();
  await settle();
  assert.equal(none.client.state, "closed");
  assert.deepEqual(none.errors.map((e) => [e.error.code, e.terminal]), [[4500, true]]);

  let calls = 0;
  const flaky = setup({
    client: {
      getToken: () => {
        calls++;
        if (calls === 1) throw new Error("backend away");
        if (calls === 2) return new Promise(() => {});
        return "t";
      },
    },
  });
  flaky.client.connect();
  await settle();
  assert.equal(flaky.client.state, "waiting");
  await flaky.clock.advance(60_000);
  assert.equal(calls, 3);
  assert.equal(flaky.errors.length, 2);
  assert.ok(flaky.sockets.length >= 1);
});

test("the token is renewed on the connection before its end, again and again", async () => {
  const w = setup();
  const expires = w.clock.time + 100_000;
  w.client.connect();
  await settle();
  await w.last.open();
  await w.last.say(welcome({ tokenExpiresAt: new Date(expires).toISOString(), pingInterval: 1_000_000 }));
  w.token = "t2";
  await w.clock.advance(80_000);
  assert.deepEqual(w.last.of("token"), [{ type: "token", token: "t2" }]);
  w.token = "t3";
  await w.clock.advance(80_000);
  assert.deepEqual(w.last.of("token").at(-1), { type: "token", token: "t3" });
  await w.last.die();
  const s = await w.rejoin();
  assert.equal(s.hello.token, "t3");
});

test("a renewal that fails is told, and tried again before the end", async () => {
  let fail = false;
  let calls = 0;
  const w = setup({
    client: {
      getToken: () => {
        calls++;
        if (fail) throw new Error("away");
        return `t${calls}`;
      },
    },
  });
  w.client.connect();
  await settle();
  await w.last.open();
  await w.last.say(welcome({ tokenExpiresAt: w.clock.time + 1_000_000, pingInterval: 10_000_000 }));
  fail = true;
  await w.clock.advance(800_000);
  assert.equal(w.errors.length, 1);
  fail = false;
  await w.clock.advance(100_000);
  assert.equal(w.last.of("token").length, 1);
});

test("goaway: the new connection first, the old one serves until the new welcome", async () => {
  const w = setup();
  const goaways = [];
  w.client.addEventListener("goaway", (e) => goaways.push([e.reconnectAfter, e.reason]));
  const old = await w.join({ seq: 1, id: "e1" });
  await old.say({ type: "goaway", reconnectAfter: 3_000, reason: "drain" });
  assert.deepEqual(goaways, [[3_000, "drain"]]);
  await w.clock.advance(2_900);
  assert.equal(w.sockets.length, 1);
  await w.clock.advance(200);
  const fresh = w.last;
  assert.notEqual(fresh, old);
  await fresh.open();
  assert.deepEqual(fresh.hello.resume, { epoch: "E1", seq: 1, id: "e1" });
  await old.say(events([2, "e2"]));
  assert.deepEqual(old.acks.at(-1), [1, 2]);
  assert.equal(old.closed, null);
  await fresh.say(welcome({ instance: "b-000000000000", seq: 1, id: "e1", recovered: true }), events([2, "e2"], [3, "e3"]));
  assert.equal(old.closed.code, 1000);
  assert.deepEqual(w.log, ["e2", "e3"]);
  assert.deepEqual(fresh.acks, [[1, 1], [1, 3]]);
  assert.equal(w.client.welcome.instance, "b-000000000000");
  assert.deepEqual(w.states, ["connecting", "open", "open"], "never anything but open, and told");
});

test("goaway: closed before the delay is over, the delay still holds", async () => {
  const w = setup();
  w.random = 0;
  const old = await w.join();
  await old.say({ type: "goaway", reconnectAfter: 3_000, reason: "drain" });
  await old.die(1012);
  assert.equal(w.client.state, "waiting");
  assert.equal(await untilDial(w), 3_000);
});

test("goaway: the old one dies while the new one is being made", async () => {
  const w = setup();
  const old = await w.join();
  await old.say({ type: "goaway", reconnectAfter: 0, reason: "drain" });
  await w.clock.advance(0);
  await old.die(1012);
  assert.equal(w.client.state, "connecting");
  assert.equal(w.sockets.length, 2);
  await w.last.open();
  await w.last.say(welcome({ recovered: true }));
  assert.equal(w.client.state, "open");
});

test("goaway: a new connection that fails leaves the old one alone", async () => {
  const w = setup();
  const old = await w.join();
  await old.say({ type: "goaway", reconnectAfter: 0, reason: "drain" });
  await w.clock.advance(0);
  await w.last.die(1006);
  await old.say(events([1, "e1"]));
  assert.deepEqual(w.log, ["e1"]);
  assert.equal(w.client.state, "open");
  await untilDial(w);
  assert.equal(w.sockets.length, 3);
});

test("goaway: too many sessions for two at once, then one after the other", async () => {
  const w = setup();
  const old = await w.join();
  await old.say({ type: "goaway", reconnectAfter: 0, reason: "drain" });
  await w.clock.advance(0);
  await w.last.die(CloseCode.TOO_MANY_SESSIONS);
  assert.equal(old.closed.code, 1000);
  assert.equal(w.client.state, "waiting");
  await w.rejoin({ recovered: true });
  assert.equal(w.client.state, "open");
});

test("TestCase_F01: after five forced reconnects one message is shown once, one socket is open", async () => {
  const w = setup();
  await w.join();
  for (let i = 0; i < 5; i++) {
    await w.last.die();
    await w.rejoin({ recovered: true });
  }
  await w.last.say(events([1, "e1"]));
  assert.deepEqual(w.log, ["e1"]);
  for (const old of w.sockets.slice(0, -1)) {
    assert.equal(old.onmessage, null);
    assert.equal(old.onclose, null);
  }
  assert.equal(w.clock.pending, 1, "the watch of the open one");
});

test("a server that never says welcome is left after ten seconds", async () => {
  const w = setup();
  w.client.connect();
  await settle();
  await w.last.open();
  await w.clock.advance(9_999);
  assert.equal(w.client.state, "connecting");
  await w.clock.advance(1);
  assert.equal(w.client.state, "waiting");
  assert.ok(w.sockets[0].closed);
});

test("the url is asked for before every attempt", async () => {
  const urls = ["ws://a", "ws://b"];
  let i = 0;
  const w = setup({ client: { url: async () => urls[i++ % 2] } });
  const s = await w.join();
  await s.die();
  await w.rejoin({ recovered: true });
  assert.deepEqual(w.sockets.map((socket) => socket.url), urls);
});

test("close and connect: nothing left behind, resumed where it was", async () => {
  const w = setup();
  const s = await w.join();
  await s.say(events([1, "e1"]));
  w.client.close();
  assert.equal(w.client.state, "closed");
  assert.equal(s.closed.code, 1000);
  assert.equal(w.clock.pending, 0);
  await w.page.online();
  assert.equal(w.sockets.length, 1, "deaf when closed");
  w.client.connect();
  await settle();
  await w.last.open();
  assert.deepEqual(w.last.hello.resume, { epoch: "E1", seq: 1, id: "e1" });
  w.client.connect();
  await settle();
  assert.equal(w.sockets.length, 2, "connect twice is connect once");
});

test("close while the token is fetched: no socket is opened", async () => {
  let give;
  const w = setup({ client: { getToken: () => new Promise((resolve) => (give = resolve)) } });
  w.client.connect();
  await settle();
  w.client.close();
  give("t");
  await settle();
  assert.equal(w.sockets.length, 0);
  assert.equal(w.client.state, "closed");
});

test("an abort closes for good", async () => {
  const abort = new AbortController();
  const w = setup({ client: { signal: abort.signal } });
  const s = await w.join();
  abort.abort();
  assert.equal(w.client.state, "closed");
  assert.ok(s.closed);
  w.client.connect();
  await settle();
  assert.equal(w.sockets.length, 1);
});
