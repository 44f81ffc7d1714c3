import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { FakeSocket, fakeFetch, idOf, settle } from "./fake.mjs";

const { EventStream, Moorage, storedAt } = await import(process.env.MOORAGE_JS);

let requests;
let answers;

beforeEach(() => {
  mock.timers.enable({ apis: ["setTimeout"] });
  mock.method(console, "error", () => {});
  FakeSocket.all = [];
  answers = {};
  requests = fakeFetch(({ method, path }) => {
    const known = Object.entries(answers).find(([key]) => `${method} ${path}`.startsWith(key));
    return known ? known[1] : [404, { error: path.endsWith("/turn") ? "Turn not found" : "Not Found" }];
  });
});

afterEach(() => {
  mock.timers.reset();
  mock.restoreAll();
});

/** A stream, with all that it tells. */
function reading(options = {}) {
  const client = new Moorage("http://h:1/", "tok");
  const stream = new EventStream(client, "s 1", { WebSocket: FakeSocket, random: () => 0.5, begin: "now", ...options });
  const told = { seqs: [], states: [], rebuilt: [] };
  stream.on("event", (event) => told.seqs.push(event.seq));
  stream.on("state", (state) => told.states.push(state));
  stream.on("rebuilt", (rebuilt) => told.rebuilt.push(rebuilt));
  stream.open();
  return { stream, told, client };
}

const query = (socket) => Object.fromEntries(socket.url.searchParams);

test("the token is a subprotocol, never in the URL", () => {
  reading();
  const { url, protocols } = FakeSocket.last;
  assert.equal(url.href, "ws://h:1/v1/sessions/s%201/stream?");
  assert.deepEqual(protocols, ["moorage.v1", "bearer.tok"]);
});

test("a cut is resumed from the checkpoint after 800 ms", () => {
  const { stream, told } = reading();
  FakeSocket.last.open(3);
  assert.equal(stream.state, "live");
  FakeSocket.last.event(4);
  FakeSocket.last.end(1006);
  assert.equal(stream.state, "waiting");
  mock.timers.tick(799);
  assert.equal(FakeSocket.all.length, 1);
  mock.timers.tick(1);
  assert.deepEqual(query(FakeSocket.last), { last_event_id: idOf(4), last_seq: "4", epoch: "e" });
  FakeSocket.last.open(6);
  assert.equal(stream.state, "replaying");
  FakeSocket.last.event(7); // live, ahead of the replay
  for (const seq of [5, 6, 7]) FakeSocket.last.event(seq);
  assert.equal(stream.checkpoint.id, idOf(4));
  FakeSocket.last.done(7);
  assert.equal(stream.checkpoint.id, idOf(7));
  assert.deepEqual(told.seqs, [4, 5, 6, 7]);
  assert.deepEqual(told.states, ["connecting", "live", "waiting", "connecting", "replaying", "live"]);
  const { replayed, deduplicated, overlaps, missed } = stream.statistics;
  assert.deepEqual({ replayed, deduplicated, overlaps, missed }, { replayed: 2, deduplicated: 1, overlaps: 1, missed: 0 });
});

test("five tries, doubling to 8 s, then failed; reconnect() goes on; success resets the count", () => {
  const { stream } = reading();
  FakeSocket.last.open();
  answers["GET /v1/sessions"] = [0];
  for (const pause of [800, 1600, 3200, 6400, 8000]) {
    FakeSocket.last.end(1006);
    const count = FakeSocket.all.length;
    mock.timers.tick(pause - 1);
    assert.equal(FakeSocket.all.length, count);
    mock.timers.tick(1);
    assert.equal(FakeSocket.all.length, count + 1);
  }
  FakeSocket.last.end(1006);
  assert.equal(stream.state, "failed");
  assert.equal(stream.cause, "connection lost");
  mock.timers.tick(60_000);
  assert.equal(FakeSocket.all.length, 6);
  stream.reconnect();
  FakeSocket.last.open();
  FakeSocket.last.done(0);
  FakeSocket.last.end(1006);
  mock.timers.tick(800);
  assert.equal(FakeSocket.all.length, 8);
});

test("a goodbye is no try and leads back at once", () => {
  const { stream } = reading();
  for (let goodbye = 0; goodbye < 12; goodbye++) {
    FakeSocket.last.open();
    if (goodbye) FakeSocket.last.done(0);
    assert.equal(stream.state, "live");
    FakeSocket.last.end(goodbye % 2 ? 1001 : 1012);
    mock.timers.tick(125);
    assert.equal(FakeSocket.all.length, goodbye + 2);
  }
});

test("1000 closes, 4401 and 4404 fail, 4408 comes back", () => {
  for (const [code, state, cause] of [
    [1000, "closed", "closed with 1000"],
    [4401, "failed", "Invalid token"],
    [4404, "failed", "Session not found"],
    [4408, "waiting", "closed with 4408"],
    [1011, "waiting", "closed with 1011"],
  ]) {
    const { stream } = reading();
    FakeSocket.last.open();
    FakeSocket.last.end(code);
    assert.equal(stream.state, state, String(code));
    assert.equal(stream.cause, cause);
    stream.close();
  }
});

test("a refused upgrade is asked about, since browsers hide why", async () => {
  for (const [status, error] of [[401, "Invalid token"], [404, "Session not found"]]) {
    answers["GET /v1/sessions/s%201/events"] = [status, { error }];
    const { stream } = reading();
    const count = FakeSocket.all.length;
    FakeSocket.last.end(1006);
    await settle();
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(stream.state, "failed");
    assert.equal(stream.cause, error);
    mock.timers.tick(20_000);
    assert.equal(FakeSocket.all.length, count);
  }
});

test("45 s of silence are a dead connection; pings are answered and count as life", () => {
  const { stream } = reading();
  FakeSocket.last.open();
  const socket = FakeSocket.last;
  for (let ping = 0; ping < 5; ping++) {
    mock.timers.tick(44_000);
    socket.frame({ type: "ping" });
  }
  assert.deepEqual(socket.sent, Array(5).fill({ type: "pong" }));
  mock.timers.tick(44_999);
  assert.equal(stream.state, "live");
  mock.timers.tick(1);
  assert.equal(stream.state, "waiting");
  assert.equal(socket.closed, true);
});

test("a hole is waited for, then the log is read anew", () => {
  const { stream, told } = reading();
  FakeSocket.last.open();
  FakeSocket.last.event(1);
  FakeSocket.last.event(3);
  assert.deepEqual(told.seqs, [1]);
  mock.timers.tick(5000);
  assert.equal(stream.state, "waiting");
  mock.timers.tick(800);
  assert.equal(query(FakeSocket.last).last_event_id, idOf(1));
  FakeSocket.last.open(3);
  FakeSocket.last.event(3); // the log itself has no 2
  FakeSocket.last.done(3);
  mock.timers.tick(5000);
  assert.equal(stream.state, "live");
  assert.deepEqual(told.seqs, [1, 3]);
  assert.equal(stream.statistics.missed, 1);
});

test("a gap is rebuilt from the turn, what comes meanwhile follows it", async () => {
  const frame = (seq, type = "step") => ({ type: "event", id: idOf(seq), seq, event: { type, data: null, at: 1 } });
  answers["GET /v1/sessions/s%201/turn"] = [200, {
    taskId: "t", status: "running", events: [frame(5, "session_created"), frame(6)],
    lastEventId: idOf(6), lastSeq: 6, epoch: "e",
  }];
  const { stream, told } = reading({ checkpoint: { id: idOf(1), seq: 1, epoch: "e" } });
  FakeSocket.last.open(6);
  FakeSocket.last.frame({ type: "replay_gap", reason: "trimmed", oldest: idOf(4), missed: 2 });
  FakeSocket.last.event(6);
  FakeSocket.last.event(7);
  assert.equal(stream.state, "replaying");
  assert.deepEqual(told.seqs, []);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(stream.state, "live");
  const [{ turn, gap, fresh, missed }] = told.rebuilt;
  assert.equal(turn.taskId, "t");
  assert.equal(gap.reason, "trimmed");
  assert.deepEqual(fresh.map(({ seq }) => seq), [5, 6]);
  assert.equal(missed, 3);
  assert.deepEqual(told.seqs, [7]);
  assert.equal(requests[0].headers.Authorization, "Bearer tok");
});

const turnOf = (epoch, ...seqs) => [200, {
  taskId: "t", status: "running", epoch, lastEventId: idOf(seqs.at(-1)), lastSeq: seqs.at(-1),
  events: seqs.map((seq) => ({ type: "event", id: idOf(seq), seq, event: { type: "step", data: null, at: 1 } })),
}];

test("a server that begins anew in mid-connection", async () => {
  const { stream, told } = reading();
  FakeSocket.last.open(1);
  FakeSocket.last.event(2);
  const anew = (epoch, seq) => {
    FakeSocket.last.frame({ type: "ws_ready", sessionId: "s", lastEventId: idOf(seq), lastSeq: seq, epoch });
    FakeSocket.last.frame({ type: "replay_gap", reason: "epoch", oldest: null });
  };
  answers["GET /v1/sessions/s%201/turn"] = turnOf("e2", 1);
  anew("e2", 1);
  answers["GET /v1/sessions/s%201/turn"] = turnOf("e3", 1, 2);
  anew("e3", 2); // before the turn of the second log is there: it counts no more
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(told.rebuilt.map(({ fresh, missed }) => [fresh.length, missed]), [[2, null]]);
  FakeSocket.last.event(3);
  assert.deepEqual(told.seqs, [2, 3]);
  assert.equal(stream.statistics.connections, 1);
  assert.equal(stream.checkpoint.epoch, "e3");
});

test("a turn longer than one answer is read on", async () => {
  answers["GET /v1/sessions/s%201/turn"] = turnOf("e", 1, 2);
  const { stream, told } = reading({ begin: "turn" });
  FakeSocket.last.open(4);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(told.rebuilt.length, 1);
  mock.timers.tick(800);
  assert.equal(query(FakeSocket.last).last_event_id, idOf(2));
  FakeSocket.last.open(4);
  for (const seq of [3, 4]) FakeSocket.last.event(seq);
  FakeSocket.last.done(4);
  assert.deepEqual(told.seqs, [3, 4]);
  assert.equal(stream.statistics.missed, 0);
});

test("a turn that cannot be had is a lost connection", async () => {
  answers["GET /v1/sessions/s%201/turn"] = [503, { error: "Backplane unavailable" }];
  const { stream } = reading({ begin: "turn" });
  FakeSocket.last.open(3);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(stream.state, "waiting");
  assert.match(stream.cause, /cannot rebuild.*Backplane unavailable/);
  answers = {};
  mock.timers.tick(800);
  FakeSocket.last.open(3);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(stream.state, "live");
  assert.equal(stream.checkpoint.id, idOf(3));
});

test("a session that is gone ends the rebuilding at once", async () => {
  answers["GET /v1/sessions/s%201/turn"] = [404, { error: "Session not found" }];
  const { stream } = reading({ begin: "turn" });
  FakeSocket.last.open(3);
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual([stream.state, stream.cause], ["failed", "Session not found"]);
  mock.timers.tick(60_000);
  assert.equal(FakeSocket.all.length, 1);
});

test("a runtime without a WebSocket is told so", () => {
  const kept = globalThis.WebSocket;
  globalThis.WebSocket = undefined;
  try {
    assert.throws(() => new EventStream(new Moorage("http://h:1/", "tok"), "s"), /no global WebSocket/);
  } finally {
    globalThis.WebSocket = kept;
  }
});

test("a task is started after ws_ready, once, and never again", async () => {
  answers["POST /v1/sessions/s%201/tasks"] = [0];
  const { stream } = reading();
  const starting = stream.startTask({ a: 1 }, "demo");
  starting.catch(() => {});
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(requests.length, 0);
  FakeSocket.last.open();
  await assert.rejects(starting, { name: "MoorageError", status: 0 });
  FakeSocket.last.end(1006);
  mock.timers.tick(800);
  FakeSocket.last.open();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(requests.map(({ method, body }) => [method, body]), [["POST", { input: { a: 1 }, handler: "demo" }]]);
});

test("ready() fails with the cause", async () => {
  const { stream } = reading();
  const waiting = stream.ready();
  FakeSocket.last.end(4404);
  await assert.rejects(waiting, { message: "Session not found" });
});

test("the checkpoint lives in a storage and survives a reload", () => {
  const kept = new Map();
  const storage = storedAt({ getItem: (key) => kept.get(key) ?? null, setItem: (key, text) => kept.set(key, text) }, "k");
  const { stream } = reading({ storage });
  FakeSocket.last.open(3);
  FakeSocket.last.event(4);
  stream.close();
  assert.deepEqual(JSON.parse(kept.get("k")), { id: idOf(4), seq: 4, epoch: "e" });
  reading({ storage });
  assert.equal(query(FakeSocket.last).last_event_id, idOf(4));
  for (const junk of ["{", "null", '{"id":5}', '{"id":"x"}']) {
    kept.set("k", junk);
    assert.equal(storage.load(), null);
  }
});

test("a storage and listeners that throw stop nothing", () => {
  const { stream, told } = reading({ storage: { load: () => null, save: () => { throw new Error("full"); } } });
  const off = stream.on("event", () => { throw new Error("mine"); });
  FakeSocket.last.open();
  FakeSocket.last.event(1);
  off();
  FakeSocket.last.event(2);
  assert.deepEqual(told.seqs, [1, 2]);
});

test("junk is counted, another log is left", () => {
  const { stream, told } = reading();
  FakeSocket.last.open(5);
  for (const junk of ["{", "1", "null", '{"type":"later"}', '{"type":"event","id":"7","seq":1,"event":{"type":"t"}}'])
    FakeSocket.last.frame(junk);
  assert.equal(stream.statistics.malformed, 5);
  assert.equal(stream.state, "live");
  FakeSocket.last.frame({ type: "event", id: "5000-0", seq: 1, event: { type: "t" } });
  assert.equal(stream.state, "waiting");
  assert.match(stream.cause, /another log/);
  assert.deepEqual(told.seqs, []);
});

test("frames of a connection that was left are not heard", () => {
  const { stream, told } = reading();
  const [old] = FakeSocket.all;
  old.open();
  stream.reconnect();
  old.event(1);
  old.end(1000);
  FakeSocket.last.open(0);
  FakeSocket.last.done(0);
  assert.equal(stream.state, "live");
  assert.deepEqual(told.seqs, []);
});
