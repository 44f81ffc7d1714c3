// A Node server of the same cluster, driven by JSON lines: {"id", "do", ...} in, {"id", "result"} out.
// Environment: REDIS_URL, PACKAGES (a folder with node_modules), ADAPTER (package of the adapter), ADAPTER_OPTIONS
// (JSON), RECOVERY (set: connection state recovery).

import { createRequire } from "node:module";
import { createServer } from "node:http";
import { createInterface } from "node:readline";

const require = createRequire(`${process.env.PACKAGES}/`);
const { createAdapter } = require(process.env.ADAPTER ?? "@socket.io/redis-streams-adapter");
const { createClient } = require("redis");
const { Server } = require("socket.io");

// Before anything that may wait for ever: a peer must not outlive its test.
const lines = createInterface({ input: process.stdin }).on("close", () => process.exit(0));

// The adapter 0.2.3 does not work with redis 5.
const old = process.env.ADAPTER === "redis-streams-adapter-02";
const redis = old ? new (require("ioredis"))(process.env.REDIS_URL) : createClient({ url: process.env.REDIS_URL });
if (!old) await redis.connect();
const http = createServer();
const io = new Server(http, {
  adapter: createAdapter(redis, JSON.parse(process.env.ADAPTER_OPTIONS ?? "{}")),
  transports: ["websocket"],
  ...(process.env.RECOVERY ? { connectionStateRecovery: {} } : {}),
});
io.on("connection", (socket) => {
  socket.data.from = "node";
  socket.join("all");
});
io.on("double", (number, reply) => reply && reply(number * 2));

const revive = (value) => (value && value.$bytes ? Buffer.from(value.$bytes, "base64") : value);
const actions = {
  emit: ({ rooms, except, event, args }) => void io.to(rooms).except(except ?? []).emit(event, ...args.map(revive)),
  date: ({ rooms }) => void io.to(rooms).emit("date", new Date(0), Buffer.from([1])),
  join: ({ sid, room }) => void io.in(sid).socketsJoin(room),
  leave: ({ sid, room }) => void io.in(sid).socketsLeave(room),
  disconnect: ({ sid, close }) => void io.in(sid).disconnectSockets(close),
  ack: ({ rooms, event, args }) => io.to(rooms).timeout(3000).emitWithAck(event, ...args),
  serverSide: ({ event, args }) => io.serverSideEmitWithAck(event, ...args),
  fetch: async ({ rooms }) =>
    (await io.in(rooms).timeout(3000).fetchSockets()).map((s) => ({
      id: s.id, rooms: [...s.rooms].sort(), data: s.data, handshake: Object.keys(s.handshake),
    })),
};

http.listen(0, "127.0.0.1", () => console.log(JSON.stringify({ port: http.address().port })));
lines.on("line", async (line) => {
  const request = JSON.parse(line);
  try {
    console.log(JSON.stringify({ id: request.id, result: (await actions[request.do](request)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ id: request.id, error: String(error) }));
  }
});
