// A web client: one call that answers, one that is in flight while a pod goes, then calls until one answers again.
import { createRequire } from "node:module";

const [url, token, packages] = process.argv.slice(2);
const { io } = createRequire(packages + "/")("socket.io-client");
const socket = io(url, { path: "/v1/updates", transports: ["websocket"], auth: { token, clientType: "user-scoped" } });
const say = (what, value) => console.log(JSON.stringify({ what, value }));
const call = (method, params, ms) =>
  socket.timeout(ms).emitWithAck("rpc-call", { method, params, timeoutMs: ms }).catch((error) => ({ ok: false, code: `client: ${error.message}` }));
const connected = new Promise((resolve) => socket.on("connect", resolve));
await connected;
say("first", await call("m1:add", { a: 1, b: 2 }, 10000));
const long = call("m1:sleep", { seconds: 120 }, 100000);
say("calling", true);
say("long", await long);
for (let tries = 0; tries < 60; tries++) {
  const answer = await call("m1:add", { a: 3, b: 4 }, 2000);
  if (answer.ok) { say("again", answer); break; }
  await new Promise((resolve) => setTimeout(resolve, 500));
}
process.exit(0);
