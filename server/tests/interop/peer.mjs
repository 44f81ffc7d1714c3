// Node servers and their clients in one process, driven by JSON lines: {"id", "do", …} in, {"id", "result"} out.
// What a client receives is written as {"client", "event": [name, …args]}; buffers are {"$bytes": base64}.
// Environment: REDIS_URL, PACKAGES (a folder with node_modules).

import { createRequire } from "node:module";
import { createServer } from "node:http";
import { createInterface } from "node:readline";

const require = createRequire(`${process.env.PACKAGES}/`);
const { createAdapter } = require("@socket.io/redis-streams-adapter");
const { createClient } = require("redis");
const { Server } = require("socket.io");
const { io: connect } = require("socket.io-client");

const servers = new Map();
const clients = new Map();
const write = (line) => console.log(JSON.stringify(line, hide));
const revive = (value) => {
  if (Array.isArray(value)) return value.map(revive);
  if (value === null || typeof value !== "object") return value;
  if (value.$bytes) return Buffer.from(value.$bytes, "base64");
  if (value.$date !== undefined) return new Date(value.$date);
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, revive(inner)]));
};

function hide(key, value) {
  const found = this[key];
  if (Buffer.isBuffer(found)) return { $bytes: found.toString("base64") };
  return value;
}

async function serve({ name = "main", adapter = {}, options = {}, namespaces = ["/"] }) {
  const redis = createClient({ url: process.env.REDIS_URL });
  redis.on("error", () => {}); // it reconnects by itself; without a listener the process would end
  await redis.connect();
  const http = createServer();
  const io = new Server(http, { adapter: createAdapter(redis, adapter), ...options });
  for (const nsp of namespaces) {
    io.of(nsp).on("connection", (socket) => {
      socket.data.from = "node";
      socket.join("all");
    });
    io.of(nsp).on("double", (number, reply) => reply && reply(number * 2));
  }
  await new Promise((resolve) => http.listen(0, "127.0.0.1", resolve));
  servers.set(name, { io, port: http.address().port });
}

function client({ server = "main", name, nsp = "/", transports = ["websocket"] }) {
  const socket = connect(`http://127.0.0.1:${servers.get(server).port}${nsp}`, {
    transports, reconnection: false, forceNew: true,
  });
  clients.set(name, socket);
  socket.onAny((...event) => {
    const reply = typeof event.at(-1) === "function" ? event.pop() : undefined;
    write({ client: name, event });
    if (reply && event[0] !== "never answer") reply({ ack: name });
  });
  socket.on("disconnect", (reason) => write({ client: name, event: ["disconnect", reason] }));
  return new Promise((resolve, reject) => {
    socket.on("connect", () => resolve(socket.id));
    socket.on("connect_error", reject);
  });
}

const at = ({ server = "main", nsp = "/" }) => servers.get(server).io.of(nsp);
const actions = {
  serve,
  client,
  emit: (request) => {
    const { rooms = [], except = [], event, args = [], flags = [] } = request;
    let target = at(request).to(rooms).except(except);
    for (const flag of flags) target = target[flag];
    target.emit(event, ...args.map(revive));
  },
  burst: (request) => {
    for (let n = 0; n < request.count; n++) at(request).to(request.rooms ?? []).emit(request.event, n);
  },
  join: (request) => void at(request).in(request.rooms).socketsJoin(request.room),
  leave: (request) => void at(request).in(request.rooms).socketsLeave(request.room),
  joinAndEmit: (request) => {
    for (let n = 0; n < request.count; n++) {
      at(request).in(request.sid).socketsJoin(`joined-${n}`);
      at(request).to(`joined-${n}`).emit("joined", n);
    }
  },
  disconnect: (request) => void at(request).in(request.rooms).disconnectSockets(request.close ?? false),
  ack: (request) =>
    at(request).to(request.rooms ?? []).timeout(request.timeout ?? 3000)
      .emitWithAck(request.event, ...(request.args ?? []).map(revive)),
  serverSide: (request) => at(request).serverSideEmitWithAck(request.event, ...(request.args ?? [])),
  serverSidePlain: (request) => void at(request).serverSideEmit(request.event, ...(request.args ?? [])),
  fetch: async (request) =>
    (await at(request).in(request.rooms ?? []).timeout(request.timeout ?? 3000).fetchSockets()).map((s) => ({
      id: s.id, rooms: [...s.rooms].sort(), data: s.data,
    })),
};

createInterface({ input: process.stdin })
  .on("line", async (line) => {
    const request = JSON.parse(line);
    try {
      write({ id: request.id, result: (await actions[request.do](request)) ?? null });
    } catch (error) {
      write({ id: request.id, error: String(error?.message ?? error) });
    }
  })
  .on("close", () => process.exit(0));
