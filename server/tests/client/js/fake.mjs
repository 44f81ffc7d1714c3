// A WebSocket and a fetch that follow the script of a test.

export class FakeSocket {
  static all = [];
  sent = [];
  closed = false;

  constructor(url, protocols) {
    this.url = new URL(url);
    this.protocols = protocols;
    FakeSocket.all.push(this);
  }

  static get last() {
    return FakeSocket.all.at(-1);
  }

  send(text) {
    this.sent.push(JSON.parse(text));
  }

  close() {
    this.closed = true;
  }

  // -- what the server does
  open(lastSeq = 0, epoch = "e") {
    this.onopen?.();
    this.frame({ type: "ws_ready", sessionId: "s", lastEventId: idOf(lastSeq), lastSeq, epoch });
  }

  frame(frame) {
    this.onmessage?.({ data: typeof frame === "string" ? frame : JSON.stringify(frame) });
  }

  event(seq, type = "step") {
    this.frame({ type: "event", id: idOf(seq), seq, event: { type, data: null, at: 1 } });
  }

  done(seq) {
    this.frame({ type: "replay_done", lastEventId: idOf(seq) });
  }

  end(code) {
    this.onclose?.({ code });
  }
}

export const idOf = (seq) => (seq ? `${990 + seq}-0` : "0-0");

/** @param {(request: {method: string, path: string, body: any, headers: any}) => [number, any]} answer */
export function fakeFetch(answer) {
  const seen = [];
  globalThis.fetch = async (url, { method = "GET", headers = {}, body } = {}) => {
    const { pathname, search } = new URL(url);
    const request = { method, path: pathname + search, headers, body: body && JSON.parse(body) };
    seen.push(request);
    const [status, content] = answer(request);
    if (status === 0) throw new TypeError("fetch failed");
    return new Response(content === null ? null : JSON.stringify(content), { status });
  };
  return seen;
}

/** Let promises that are ready go on. */
export async function settle() {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
}
