// An unmodified socket.io-client, told what to do by lines of JSON on stdin; answers and events are lines on stdout.
//   {"n": 1, "do": "connect", "url", "options"}          -> {"n": 1, "ok": true, "value": {"sid", "recovered"}}
//                                                           or {"n": 1, "ok": false, "error": connect_error.message}
//   {"n": 2, "do": "emit", "args": [event, …]}
//   {"n": 3, "do": "ask", "args": [event, …], "limit": ms} -> value: the ack's first argument
//   {"n": 4, "do": "serve", "method", "result"}          acks rpc-request with {"served": params} or with `result`;
//                                                        "hang": true never acks
//   {"n": 5, "do": "cut"}                                the transport breaks; the client reconnects by itself
//   {"n": 6, "do": "disconnect"}
// Every event from the server is written as {"event", "args"}, every connect after the first as {"event": "connect"}.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const { io } = createRequire(process.argv[2])("socket.io-client");
const served = new Map();
let socket;

const write = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const state = () => ({ sid: socket.id, recovered: socket.recovered === true });

function connect({ n, url, options }) {
  let first = true;
  socket = io(url, options);
  socket.on("connect", () => {
    if (first) write({ n, ok: true, value: state() });
    else write({ event: "connect", args: [state()] });
    first = false;
  });
  socket.on("connect_error", (error) => {
    if (first) write({ n, ok: false, error: error.message });
  });
  socket.onAny((event, ...args) => {
    const ack = typeof args.at(-1) === "function" ? args.pop() : undefined;
    write({ event, args });
    const behaviour = event === "rpc-request" && served.get(args[0].method);
    if (behaviour && !behaviour.hang) ack("result" in behaviour ? behaviour.result : { served: args[0].params });
  });
}

const actions = {
  connect,
  emit: ({ n, args }) => write({ n, ok: Boolean(socket.emit(...args)) }),
  ask: ({ n, args, limit }) =>
    socket
      .timeout(limit)
      .emitWithAck(...args)
      .then((value) => write({ n, ok: true, value: value ?? null }))
      .catch((error) => write({ n, ok: false, error: error.message })),
  serve: ({ n, method, ...behaviour }) => {
    served.set(method, behaviour);
    write({ n, ok: true });
  },
  cut: ({ n }) => {
    socket.io.engine.close();
    write({ n, ok: true });
  },
  disconnect: ({ n }) => {
    socket.disconnect();
    write({ n, ok: true });
  },
};

createInterface({ input: process.stdin })
  .on("line", (line) => {
    const command = JSON.parse(line);
    actions[command.do](command);
  })
  .on("close", () => process.exit(0));
