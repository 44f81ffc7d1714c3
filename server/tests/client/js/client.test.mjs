import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeFetch } from "./fake.mjs";

const { Ledger, Moorage, MoorageError, compareIds, parseId } = await import(process.env.MOORAGE_JS);

test("ids are two numbers", () => {
  assert.deepEqual(parseId("18446744073709551615-0"), [18446744073709551615n, 0n]);
  for (const junk of ["18446744073709551616-0", "1", "1-", "-1", "1-2-3", "١-٢", "", null, 5, ["1-2"]])
    assert.equal(parseId(junk), null);
  const sorted = ["0-0", "999-12", "1000-9", "1000-10", "9007199254740993-0", "9007199254740993-1"];
  assert.deepEqual([...sorted].reverse().sort(compareIds), sorted);
  assert.equal(compareIds("7-1", "7-1"), 0);
});

test("a ledger without anything is empty", () => {
  const ledger = new Ledger();
  assert.deepEqual([ledger.begin(), ledger.hole, ledger.overflowing, ledger.checkpoint], [[], false, false, null]);
});

test("requests", async () => {
  const seen = fakeFetch(({ path }) => {
    if (path.endsWith("/replies")) return [202, null];
    if (path.endsWith("/turn")) return [404, { error: "Turn not found", statusCode: 404 }];
    if (path.endsWith("/tasks")) return [202, { taskId: "t1" }];
    if (path === "/v1/sessions") return [200, { session: { id: "a/b" }, sessions: [1] }];
    return [200, { status: "done" }];
  });
  const client = new Moorage("http://h/", "tok");
  assert.deepEqual(await client.createSession("x", { m: 1 }), { id: "a/b" });
  assert.deepEqual(await client.sessions(), [1]);
  assert.equal(await client.startTask("a/b", { in: 1 }), "t1");
  assert.equal(await client.turn("a/b"), null);
  await client.reply("a/b", "q", [1]);
  assert.equal((await client.task("t/1")).status, "done");
  await client.events("a/b", "1-2", 5);
  await client.deleteSession("a/b");
  assert.deepEqual(seen.map(({ method, path, body }) => [method, path, body]), [
    ["POST", "/v1/sessions", { tag: "x", metadata: { m: 1 } }],
    ["GET", "/v1/sessions", undefined],
    ["POST", "/v1/sessions/a%2Fb/tasks", { input: { in: 1 } }],
    ["GET", "/v1/sessions/a%2Fb/turn", undefined],
    ["POST", "/v1/sessions/a%2Fb/replies", { questionId: "q", answer: [1] }],
    ["GET", "/v1/tasks/t%2F1", undefined],
    ["GET", "/v1/sessions/a%2Fb/events?after=1-2&limit=5", undefined],
    ["DELETE", "/v1/sessions/a%2Fb", undefined],
  ]);
  assert.ok(seen.every(({ headers }) => headers.Authorization === "Bearer tok"));
});

test("refusals and silence are MoorageErrors", async () => {
  const client = new Moorage("http://h");
  fakeFetch(() => [503, { error: "Backplane unavailable", message: "later" }]);
  await assert.rejects(client.sessions(), { name: "MoorageError", status: 503, message: "Backplane unavailable: later" });
  fakeFetch(() => [0]);
  await assert.rejects(client.sessions(), { status: 0, error: "No answer" });
  globalThis.fetch = async () => new Response("<html>", { status: 502 });
  await assert.rejects(client.sessions(), (error) => error instanceof MoorageError && error.status === 502);
});

test("signing in signs the challenge", async () => {
  let body;
  fakeFetch((request) => {
    body = request.body;
    return [200, { success: true, token: "t" }];
  });
  assert.equal(await Moorage.hasKeys(), true);
  const key = await Moorage.generateKey();
  assert.equal(key.privateKey.extractable, false);
  const client = new Moorage("http://h");
  assert.equal(await client.signIn(key), "t");
  assert.equal(client.token, "t");
  const bytes = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  assert.deepEqual(Buffer.from(await crypto.subtle.exportKey("raw", key.publicKey)), Buffer.from(bytes(body.publicKey)));
  const { publicKey } = key;
  assert.ok(await crypto.subtle.verify("Ed25519", publicKey, bytes(body.signature), bytes(body.challenge)));
  assert.ok(Math.abs(parseInt(new TextDecoder().decode(bytes(body.challenge))) - Date.now()) < 60_000);
});

test("server-sent events, however they are cut into pieces", async () => {
  const text = ': hello\nid: e:1-0:1\ndata: {"type":"event",\r\ndata: "id":"1-0"}\r\n\r\n\ndata: {"é":1}\r\rid: e:2-0:2\ndata: 3\n\ndata: 4';
  for (const size of [1, 2, 3, 7, 1000]) {
    let headers;
    globalThis.fetch = async (url, options) => {
      headers = options.headers;
      const bytes = new TextEncoder().encode(text);
      const parts = Array.from({ length: Math.ceil(bytes.length / size) }, (_, n) => bytes.slice(n * size, (n + 1) * size));
      return new Response(ReadableStream.from(parts));
    };
    const got = [];
    for await (const each of new Moorage("http://h", "tok").sse("s", { lastEventId: "e:0-0:0" })) got.push(each);
    assert.deepEqual(got, [
      { id: "e:1-0:1", frame: { type: "event", id: "1-0" } },
      { id: "e:1-0:1", frame: { é: 1 } },
      { id: "e:2-0:2", frame: 3 },
    ]);
    assert.equal(headers["Last-Event-ID"], "e:0-0:0");
    assert.equal(headers.Authorization, "Bearer tok");
  }
});
