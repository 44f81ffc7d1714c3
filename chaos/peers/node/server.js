// One Node replica: what the published design of this kind of system does, on the libraries' own defaults.
// Environment: PORT, REDIS_URL, SECRET_KEY, SOCKETIO_PATH (default /v1/updates), RECOVERY (set: connection state recovery).

import { createHmac, timingSafeEqual } from "node:crypto";
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { createAdapter } from "@socket.io/redis-streams-adapter";
import { createClient } from "redis";
import { Server } from "socket.io";

const require = createRequire(import.meta.url);
const PACKAGES = ["socket.io", "@socket.io/redis-streams-adapter", "socket.io-adapter", "redis"];
const CALL_TIMEOUT_MS = 30_000;
const GRACE_MS = 15_000;
const LOOKUP_MS = 2_000;
const LOOKUP_EVERY_MS = 200;

const versions = { node: process.versions.node };
for (const name of PACKAGES) versions[name] = require(`${name}/package.json`).version;

if (process.argv.includes("--versions")) {
  console.log(JSON.stringify(versions));
  process.exit(0);
}

const secret = process.env.SECRET_KEY ?? "";
const redis = createClient({ url: process.env.REDIS_URL });
redis.on("error", (error) => console.error(`redis: ${error.message}`));
await redis.connect();

const http = createServer(answer);
const io = new Server(http, {
  path: process.env.SOCKETIO_PATH ?? "/v1/updates",
  serveClient: false,
  transports: ["websocket"],
  pingInterval: 15_000,
  pingTimeout: 45_000,
  adapter: createAdapter(redis),
  ...(process.env.RECOVERY ? { connectionStateRecovery: {} } : {}),
});

/** The account of an HS256 token, or null. */
function accountOf(token) {
  const [head, body, signature] = String(token ?? "").split(".");
  if (!signature) return null;
  const expected = createHmac("sha256", secret).update(`${head}.${body}`).digest();
  const given = Buffer.from(signature, "base64url");
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) return null;
  return JSON.parse(Buffer.from(body, "base64url").toString()).sub ?? null;
}

io.use((socket, next) => {
  const { token, clientType, sessionId, machineId } = socket.handshake.auth ?? {};
  const user = accountOf(token);
  if (!user) return next(new Error("Invalid authentication token"));
  socket.data.user = user;
  const scope =
    clientType === "session-scoped" ? `session:${sessionId}` :
    clientType === "machine-scoped" ? `machine:${machineId}` : "user-scoped";
  socket.join([`user:${user}`, `user:${user}:${scope}`]);
  next();
});

/** The newest socket that serves `room`, asked of every replica; undefined when the grace has passed. */
async function target(room) {
  const until = Date.now() + GRACE_MS;
  for (;;) {
    const found = await io.in(room).timeout(LOOKUP_MS).fetchSockets().catch(() => []);
    if (found.length) return found[found.length - 1];
    if (Date.now() >= until) return undefined;
    await new Promise((resolve) => setTimeout(resolve, LOOKUP_EVERY_MS));
  }
}

async function call(socket, { method, params, requestId, timeoutMs }) {
  const remote = await target(`rpc:${socket.data.user}:${method}`);
  if (!remote) return { ok: false, error: "RPC method not available" };
  if (remote.id === socket.id) return { ok: false, error: "Cannot call RPC on the same socket" };
  try {
    const result = await remote
      .timeout(timeoutMs ?? CALL_TIMEOUT_MS)
      .emitWithAck("rpc-request", { method, params, requestId });
    return { ok: true, result };
  } catch (error) {
    return { ok: false, error: error.message };
  }
}

io.on("connection", (socket) => {
  socket.on("rpc-register", ({ method }) => {
    socket.join(`rpc:${socket.data.user}:${method}`);
    socket.emit("rpc-registered", { method });
  });
  socket.on("rpc-unregister", ({ method }) => {
    socket.leave(`rpc:${socket.data.user}:${method}`);
    socket.emit("rpc-unregistered", { method });
  });
  socket.on("rpc-call", async (data, ack) => ack(await call(socket, data)));
});

function roomsOf(user, { type, sessionId, machineId }) {
  switch (type) {
    case "all-user-authenticated-connections": return [`user:${user}`];
    case "all-interested-in-session": return [`user:${user}:session:${sessionId}`, `user:${user}:user-scoped`];
    case "machine-scoped-only": return [`user:${user}:machine:${machineId}`, `user:${user}:user-scoped`];
    default: return [`user:${user}:user-scoped`];
  }
}

async function answer(request, response) {
  const send = (status, body) => {
    const text = JSON.stringify(body);
    response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text) });
    response.end(text);
  };
  if (request.url === "/health" || request.url === "/ready") return send(200, { status: "ok", versions });
  if (request.method !== "POST" || request.url !== "/v1/emit") return send(404, { error: "Not found", statusCode: 404 });
  const user = accountOf((request.headers.authorization ?? "").replace(/^Bearer /, ""));
  if (!user) return send(401, { error: "Invalid token", statusCode: 401 });
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const { event, filter, body } = JSON.parse(Buffer.concat(chunks).toString());
  io.to(roomsOf(user, filter)).emit(event, body);
  send(202, {});
}

http.listen(Number(process.env.PORT), "127.0.0.1", () => console.log("ready"));
process.on("SIGTERM", () => process.exit(0));
