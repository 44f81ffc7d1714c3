/**
 * Moorage for browsers: signing in, sessions, tasks, and the event log of a session over lost connections.
 * One ES module without dependencies; replicas serve it at `/client/moorage.js`. Runs in Node, too.
 *
 * @typedef {{id: string, seq: number|null, epoch: string|null}} Checkpoint Everything up to here is known.
 * @typedef {{id: string|null, seq: number|null, type: string, data: any, key: string|null, at: number|null,
 *   replayed: boolean}} LogEvent `id` and `seq` are null for an event that is not in the log.
 * @typedef {{reason: string, oldest: string|null, missed?: number}} Gap What `replay_gap` says.
 * @typedef {{taskId: string, status: string, input: any, result?: any, error?: string, question?: any,
 *   events: LogEvent[], truncated?: boolean}} Turn The latest turn, running or ended.
 * @typedef {{turn: Turn|null, gap: Gap|null, fresh: LogEvent[], missed: number|null}} Rebuilt Throw away what is
 *   shown and show `turn`; `fresh`: those of its events that were not told before; `missed`: how many are lost.
 * @typedef {"connecting"|"replaying"|"live"|"waiting"|"failed"|"closed"} StreamState
 */

const MAX_HELD = 10_000; // events held back behind a missing one; far above what a log keeps
const HOLE_MS = 5_000; // a server catches its readers up within 2 s; then the log is read anew
const SILENCE_MS = 45_000; // so long without a frame, and the connection is dead
const FIRST_MS = 800, MOST_MS = 8_000, TRIES = 5, SPREAD = 0.25; // pauses between tries, 75 to 125 % of each
const AT_ONCE_MS = 250; // longest pause after a goodbye: all clients of a replica start at that moment
const GOODBYES = [1001, 1012];
const REFUSALS = { 4401: "Invalid token", 4404: "Session not found" };

/** The two numbers of an event id `<ms>-<n>`, null if it is none.
 * @param {any} id @returns {[bigint, bigint]|null} */
export function parseId(id) {
  const match = typeof id === "string" && /^([0-9]{1,20})-([0-9]{1,20})$/.exec(id);
  if (!match) return null;
  const pair = /** @type {[bigint, bigint]} */ ([BigInt(match[1]), BigInt(match[2])]);
  return pair.every((part) => part < 1n << 64n) ? pair : null;
}

/** Below, at or above 0, as for sorting. Text order is not the order of ids. @param {string} a @param {string} b */
export function compareIds(a, b) {
  const [x, y] = [parseId(a) ?? [0n, 0n], parseId(b) ?? [0n, 0n]];
  const [p, q] = x[0] === y[0] ? [x[1], y[1]] : [x[0], y[0]];
  return p < q ? -1 : p > q ? 1 : 0;
}

/** An event frame, checked; null for junk. @param {any} raw @returns {LogEvent|null} */
function eventOf(raw) {
  const { id = null, seq = null, event } = raw ?? {};
  if (raw?.type !== "event" || typeof event?.type !== "string") return null;
  if (id !== null && (!parseId(id) || !Number.isSafeInteger(seq) || seq < 0)) return null;
  const { type, data = null, key = null, at = null } = event;
  return { id, seq: id === null ? null : seq, type, data, key, at, replayed: false };
}

/** @param {any} raw @returns {Checkpoint|null} */
const placeOf = (raw) => parseId(raw?.lastEventId)
  && { id: raw.lastEventId, seq: raw.lastSeq ?? null, epoch: raw.epoch ?? null };

/** The checkpoint under `key` of a Web Storage, for the option `storage`.
 * @param {Storage} storage @param {string} key */
export const storedAt = (storage, key) => ({
  /** @returns {Checkpoint|null} */
  load() {
    try {
      const stored = JSON.parse(storage.getItem(key) ?? "null");
      return parseId(stored?.id) ? stored : null;
    } catch {
      return null;
    }
  },
  /** @param {Checkpoint} checkpoint */
  save(checkpoint) {
    storage.setItem(key, JSON.stringify(checkpoint));
  },
});

/** Ids that came already: at most those of one turn and of a replay, and all up to the floor, the checkpoint. */
export class Seen {
  floor = "0-0";
  /** @type {Set<string>} */
  ids = new Set();

  /** @param {string} id */
  has(id) {
    return this.ids.has(id) || compareIds(id, this.floor) <= 0;
  }

  /** A turn begins, or a replay is over. What is above the floor stays: a replay may still be under way. */
  clear() {
    for (const id of this.ids) if (compareIds(id, this.floor) <= 0) this.ids.delete(id);
  }
}

/** What a reader has and lacks: each event once, in the order of the log. No I/O; event_ledger.py explains it. */
export class Ledger {
  statistics = { connections: 0, resumes: 0, overlaps: 0, events: 0, unlogged: 0, replayed: 0, deduplicated: 0,
    gaps: 0, missed: 0, malformed: 0 };
  seen = new Seen();
  replaying = false;
  rebuilding = false;
  /** @type {Checkpoint|null} */ #position;
  /** @type {Checkpoint|null} */ #head = null;
  /** @type {Map<number, LogEvent>} */ #held = new Map();
  /** @type {[number, LogEvent][]} */ #idless = []; // with the seq that each follows
  /** @type {LogEvent[]} */ #waiting = [];
  /** @type {Gap|null} */ #gap = null;
  #readUpTo = "0-0"; // what the replay of this connection covered
  #knownBefore = "0-0";
  #overlapped = true;

  /** @param {Checkpoint|null} checkpoint */
  constructor(checkpoint = null) {
    this.checkpoint = this.#position = checkpoint;
    if (checkpoint) this.seen.floor = checkpoint.id;
  }

  /** A new connection. Returns what was held back without an id. */
  begin(rebuild = false) {
    for (const event of this.#held.values()) this.seen.ids.delete(event.id ?? "");
    const left = [...this.#idless.map((pair) => pair[1]), ...this.#waiting.filter((event) => event.id === null)];
    this.#held.clear();
    this.#idless = [];
    this.#waiting = [];
    this.replaying = this.checkpoint !== null;
    this.rebuilding = rebuild && !this.replaying;
    this.#gap = this.#head = null;
    this.#readUpTo = "0-0";
    this.#knownBefore = this.#position?.id ?? "0-0";
    this.#overlapped = !this.replaying;
    return left;
  }

  /** `ws_ready`. @param {Checkpoint} head */
  ready(head) {
    if (!this.#head) this.statistics.connections++; // said again, with a gap, when the server's own view broke
    this.#head = head;
    if (!this.checkpoint && !this.rebuilding) this.#move((this.#position = head));
  }

  /** What can be handed on now. Throws if this is another log than before.
   * @param {LogEvent} event @returns {LogEvent[]} */
  event(event) {
    if (this.rebuilding) {
      this.#waiting.push(event);
      return [];
    }
    const { id, seq } = event;
    if (id === null || seq === null) {
      this.statistics.unlogged++;
      if (!this.#held.size) return [event];
      this.#idless.push([Math.max(...this.#held.keys()), event]);
      return [];
    }
    if (this.seen.has(id)) {
      this.#doubled(id);
      return [];
    }
    const known = this.#position?.seq ?? null;
    if (known !== null && compareIds(id, this.#position?.id ?? "") > 0 !== seq > known)
      throw new Error(`event ${id} has number ${seq}: another log`);
    this.seen.ids.add(id);
    if (known === null || seq === known + 1) return this.#release(event);
    if (seq <= known) return [this.#count(event)];
    this.#held.set(seq, event);
    return [];
  }

  /** `replay_done`. @param {string} lastEventId */
  done(lastEventId) {
    this.replaying = false;
    this.statistics.resumes++;
    this.#readUpTo = lastEventId;
    if (this.#position) {
      this.#position.epoch ??= this.#head?.epoch ?? null;
      this.#move(this.#position);
    }
    this.seen.clear();
  }

  /** More is held back than any log keeps. */
  get overflowing() {
    return this.#held.size + this.#waiting.length + this.#idless.length > MAX_HELD;
  }

  /** An event is missing although no replay is under way. */
  get hole() {
    if (this.replaying || this.rebuilding || !this.#position) return false;
    return this.#held.size > 0 || compareIds(this.#position.id, this.#readUpTo) < 0;
  }

  /** A rebuilt turn ends before the place where the connection began. */
  get behind() {
    const [position, head] = [this.#position, this.#head];
    if (this.replaying || this.rebuilding || !position || !head) return false;
    return position.epoch === head.epoch && compareIds(position.id, head.id) < 0;
  }

  /** The hole stayed. Null: connect anew; else what comes after it, for the log was read and has it not. */
  giveUp() {
    const position = /** @type {Checkpoint} */ (this.#position);
    const first = this.#held.size ? this.#held.get(Math.min(...this.#held.keys())) : undefined;
    const covered = compareIds(position.id, this.#readUpTo) >= 0;
    if (first?.seq) {
      if (covered && compareIds(first.id ?? "", this.#readUpTo) > 0) return null;
      this.#missing(position.seq === null ? null : first.seq - position.seq - 1);
      this.#held.delete(first.seq);
      return this.#release(first);
    }
    const seq = this.#head && compareIds(this.#head.id, this.#readUpTo) === 0 ? this.#head.seq : null;
    this.#missing(seq === null || position.seq === null ? null : seq - position.seq);
    this.#move((this.#position = { id: this.#readUpTo, seq, epoch: position.epoch }));
    return [];
  }

  /** `replay_gap`: everything is held back until `rebuilt`; what was held back before is in the turn.
   * @param {Gap} gap */
  gap(gap) {
    this.#gap = gap;
    this.replaying = false;
    this.rebuilding = true;
    for (const event of this.#held.values()) this.seen.ids.delete(event.id ?? "");
    const idless = this.#waiting.filter((event) => event.id === null);
    this.#waiting = [...idless, ...this.#idless.map((pair) => pair[1])];
    this.#held.clear();
    this.#idless = [];
  }

  /** The turn was fetched, or there is none. Returns what to show anew and what to feed to `event` now.
   * @param {any} raw the answer of `GET …/turn` @returns {[Rebuilt|null, LogEvent[]]} */
  rebuilt(raw) {
    const [before, gap, waiting] = [this.#position, this.#gap, this.#waiting];
    this.rebuilding = false;
    this.#gap = null;
    this.#waiting = [];
    /** @type {LogEvent[]} */
    const events = (raw?.events ?? []).map(eventOf).filter((/** @type {LogEvent|null} */ event) => event?.id);
    const last = (events.length ? placeOf(raw) : null) ?? this.#head;
    const same = before !== null && before.epoch === last?.epoch;
    const fresh = events.filter((event) => !same || !this.seen.has(event.id ?? ""));
    let missed = gap ? gap.missed ?? null : 0;
    if (gap && same && before.seq !== null && last && last.seq !== null) {
      const from = before.seq;
      missed = Math.max(0, last.seq - from - events.filter((event) => (event.seq ?? 0) > from).length);
    }
    if (gap) this.#missing(missed);
    this.statistics.events += fresh.length;
    if (last) {
      this.#move((this.#position = { ...last }));
      this.seen.ids = new Set(events.map((event) => event.id ?? ""));
    }
    return [raw || gap ? { turn: raw ? { ...raw, events } : null, gap, fresh, missed } : null, waiting];
  }

  /** @param {string} id */
  #doubled(id) {
    this.statistics.deduplicated++;
    if (this.#overlapped || compareIds(id, this.#knownBefore) <= 0) return;
    this.#overlapped = true;
    this.statistics.overlaps++;
  }

  /** @param {LogEvent} event */
  #release(event) {
    const out = [];
    for (let next = /** @type {LogEvent|undefined} */ (event); next; ) {
      const seq = next.seq ?? 0;
      this.#position = { id: next.id ?? "", seq, epoch: this.#head?.epoch ?? null };
      if (!this.replaying) this.#move(this.#position);
      if (next.type === "session_created") this.seen.clear();
      out.push(this.#count(next), ...this.#idless.filter((pair) => pair[0] <= seq).map((pair) => pair[1]));
      this.#idless = this.#idless.filter((pair) => pair[0] > seq);
      next = this.#held.get(seq + 1);
      this.#held.delete(seq + 1);
    }
    return out;
  }

  /** @param {LogEvent} event */
  #count(event) {
    this.statistics.events++;
    if (!this.replaying || !this.#head || compareIds(event.id ?? "", this.#head.id) > 0) return event;
    this.statistics.replayed++;
    return { ...event, replayed: true };
  }

  /** @param {Checkpoint} place */
  #move(place) {
    this.checkpoint = { ...place };
    this.seen.floor = place.id;
  }

  /** @param {number|null} count */
  #missing(count) {
    this.statistics.gaps++;
    this.statistics.missed += count ?? 0;
  }
}

/** What a replica answered, or why there was no answer (`status` 0: whether anything was done is not known). */
export class MoorageError extends Error {
  /** @param {number} status @param {string} error @param {string} [message] */
  constructor(status, error, message) {
    super(message ? `${error}: ${message}` : error);
    this.name = "MoorageError";
    this.status = status;
    this.error = error;
  }
}

/** The token or the session is no good; trying again is no use. @param {any} error */
const isFinal = (error) => error instanceof MoorageError && (error.status === 401 || error.status === 404);

/** @param {Uint8Array} bytes */
const base64 = (bytes) => btoa(String.fromCharCode(...bytes));

/** An account on a replica. Every request is sent once; none is repeated. */
export class Moorage {
  /** @param {string} url `http(s)://host[:port]` @param {string|null} token */
  constructor(url, token = null) {
    this.url = url.replace(/\/+$/, "");
    this.token = token;
  }

  /** A key is an account. Needs WebCrypto with Ed25519, which browsers have in secure contexts only.
   * @returns {Promise<CryptoKeyPair>} whose private half cannot be read out */
  static async generateKey() {
    const made = crypto.subtle.generateKey({ name: "Ed25519" }, false, ["sign", "verify"]);
    return /** @type {Promise<CryptoKeyPair>} */ (made);
  }

  /** Keys can be made and used here. @returns {Promise<boolean>} */
  static async hasKeys() {
    try {
      return Boolean(await Moorage.generateKey());
    } catch {
      return false;
    }
  }

  /** Sign in and keep the token. @param {CryptoKeyPair} key @returns {Promise<string>} */
  async signIn(key) {
    const nonce = base64(crypto.getRandomValues(new Uint8Array(16)));
    const challenge = new TextEncoder().encode(`${Date.now()}:${nonce}`);
    const [publicKey, signature] = await Promise.all([
      crypto.subtle.exportKey("raw", key.publicKey),
      crypto.subtle.sign({ name: "Ed25519" }, key.privateKey, challenge),
    ]);
    const answer = await this.request("POST", "/v1/auth", {
      publicKey: base64(new Uint8Array(publicKey)),
      challenge: base64(challenge),
      signature: base64(new Uint8Array(signature)),
    });
    return (this.token = answer.token);
  }

  /** One request; the decoded answer, or MoorageError.
   * @param {string} method @param {string} path @param {any} [body] @param {number} [timeoutMs]
   * @returns {Promise<any>} */
  async request(method, path, body, timeoutMs = 10_000) {
    let response, answer;
    try {
      response = await fetch(this.url + path, {
        method,
        headers: {
          ...(body === undefined ? {} : { "Content-Type": "application/json" }),
          ...(this.token ? { Authorization: `Bearer ${this.token}` } : {}),
        },
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: AbortSignal.timeout(timeoutMs),
        cache: "no-store",
        credentials: "omit",
      });
      const text = await response.text();
      answer = text ? JSON.parse(text) : {};
    } catch (error) {
      throw new MoorageError(response && !response.ok ? response.status : 0, "No answer", String(error));
    }
    if (response.ok) return answer;
    throw new MoorageError(response.status, answer?.error ?? `HTTP ${response.status}`, answer?.message);
  }

  /** Create a session, or get the one with that tag. @param {string} tag @param {any} [metadata] */
  async createSession(tag, metadata = null) {
    return (await this.request("POST", "/v1/sessions", { tag, metadata })).session;
  }

  /** All sessions, newest first. */
  async sessions() {
    return (await this.request("GET", "/v1/sessions")).sessions;
  }

  /** @param {string} sessionId */
  deleteSession(sessionId) {
    return this.request("DELETE", this.path(sessionId));
  }

  /** Start a task; start it after `ws_ready`, which EventStream.startTask waits for.
   * @param {string} sessionId @param {any} input @param {string} [handler] @returns {Promise<string>} its id */
  async startTask(sessionId, input, handler) {
    return (await this.request("POST", this.path(sessionId, "/tasks"), { input, handler })).taskId;
  }

  /** `{status, result?, error?, attempts}`: true even if every event was lost. @param {string} taskId */
  task(taskId) {
    return this.request("GET", `/v1/tasks/${encodeURIComponent(taskId)}`);
  }

  /** The latest turn; null before any task. @param {string} sessionId */
  async turn(sessionId) {
    try {
      return await this.request("GET", this.path(sessionId, "/turn"));
    } catch (error) {
      if (error instanceof MoorageError && error.error === "Turn not found") return null;
      throw error;
    }
  }

  /** Answer a question; repeating it does no harm.
   * @param {string} sessionId @param {string} questionId @param {any} answer */
  reply(sessionId, questionId, answer) {
    return this.request("POST", this.path(sessionId, "/replies"), { questionId, answer });
  }

  /** A page of the log, `{events, next, gap?}`.
   * @param {string} sessionId @param {string} [after] @param {number} [limit] */
  events(sessionId, after = "0-0", limit = 100) {
    return this.request("GET", this.path(sessionId, `/events?after=${encodeURIComponent(after)}&limit=${limit}`));
  }

  /** The frames of the log by Server-Sent Events, until the server ends them, which is the caller's to resume:
   * `id` goes into the next `lastEventId`. EventSource cannot do this, as it sends no Authorization header.
   * @param {string} sessionId @param {{lastEventId?: string, signal?: AbortSignal}} [options]
   * @returns {AsyncGenerator<{id: string, frame: any}>} */
  async *sse(sessionId, { lastEventId = "", signal } = {}) {
    const headers = { Accept: "text/event-stream", Authorization: `Bearer ${this.token}` };
    const response = await fetch(this.url + this.path(sessionId, "/events"), {
      headers: lastEventId ? { ...headers, "Last-Event-ID": lastEventId } : headers,
      signal,
      cache: "no-store",
    });
    if (!response.ok || !response.body) throw new MoorageError(response.status, `HTTP ${response.status}`);
    let [rest, id, data] = ["", lastEventId, ""];
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const lines = (rest + part.value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? "";
      for (const line of lines) {
        const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
        if (field === "id") id = value;
        else if (field === "data") data += (data && "\n") + value;
        else if (line === "" && data) {
          yield { id, frame: JSON.parse(data) };
          data = "";
        }
      }
    }
  }

  /** @param {string} sessionId @param {string} [rest] */
  path(sessionId, rest = "") {
    return `/v1/sessions/${encodeURIComponent(sessionId)}${rest}`;
  }
}

/**
 * The event log of a session over any number of connections: each event once, in the order of the log.
 *
 * Listeners, by `on(name, listener)`: `event` (LogEvent), `rebuilt` (Rebuilt), `state` (StreamState, cause).
 * States: `replaying` is after `ws_ready` while the log or the turn is read, `waiting` before the next try, `failed`
 * after a refusal or five tries; then `reconnect()` goes on. `statistics` counts.
 */
export class EventStream {
  /** @type {StreamState} */ state = "closed";
  /** Why the last connection ended. @type {string|null} */ cause = null;
  /** @type {Record<string, Set<(...args: any[]) => void>>} */
  #listeners = { event: new Set(), rebuilt: new Set(), state: new Set() };
  /** @type {WebSocket|null} */ #socket = null;
  /** @type {Record<string, any>} */ #timers = {};
  #tries = 0;
  #goodbyes = 0;
  #fetches = 0;
  #saved = "";

  /** `begin`: where to start without a checkpoint: with the latest turn, if there is one, or with what comes next, or
   * with all that the log keeps. `storage`: where the checkpoint lives; it is saved after the listeners were called.
   * @param {Moorage} client @param {string} sessionId @param {{begin?: "turn"|"now"|"beginning",
   *   checkpoint?: Checkpoint|null, storage?: {load(): Checkpoint|null, save(checkpoint: Checkpoint): void},
   *   WebSocket?: typeof WebSocket, random?: () => number}} [options] */
  constructor(client, sessionId, { begin = "turn", checkpoint = null, storage, ...rest } = {}) {
    this.client = client;
    this.sessionId = sessionId;
    this.storage = storage;
    this.begin = begin;
    const start = checkpoint ?? storage?.load() ?? (begin === "beginning" ? { id: "0-0", seq: 0, epoch: null } : null);
    this.ledger = new Ledger(start);
    this.WebSocket = rest.WebSocket ?? globalThis.WebSocket;
    if (!this.WebSocket)
      throw new Error("This runtime has no global WebSocket: new EventStream(client, sessionId, { WebSocket })");
    this.random = rest.random ?? Math.random;
  }

  get statistics() {
    return this.ledger.statistics;
  }

  get checkpoint() {
    return this.ledger.checkpoint;
  }

  /** Returns a function that takes the listener away again.
   * @param {"event"|"rebuilt"|"state"} name @param {(...args: any[]) => void} listener */
  on(name, listener) {
    this.#listeners[name].add(listener);
    return () => this.#listeners[name].delete(listener);
  }

  /** Connect; after `close()` it goes on from where it was. */
  open() {
    if (this.state !== "closed" && this.state !== "failed") return this;
    this.#tries = this.#goodbyes = 0;
    this.#connect();
    return this;
  }

  /** Try now: after `failed`, instead of waiting, or in place of a connection that seems dead. */
  reconnect() {
    this.#leave();
    this.#tries = this.#goodbyes = 0;
    this.#connect();
    return this;
  }

  /** Let go of the connection. */
  close() {
    this.#leave();
    this.#set("closed");
  }

  /** Resolves once `ws_ready` has come, and the turn if it has to be fetched first; rejects if the stream fails or is
   * closed. @returns {Promise<void>} */
  ready() {
    return new Promise((resolve, reject) => {
      const look = () => {
        const usable = this.state === "live" || (this.state === "replaying" && !this.ledger.rebuilding);
        if (!usable && this.state !== "failed" && this.state !== "closed") return;
        off();
        usable ? resolve() : reject(new MoorageError(0, this.cause ?? "closed"));
      };
      const off = this.on("state", look);
      look();
    });
  }

  /** Wait for `ws_ready`, then start a task. The request is sent once. @param {any} input @param {string} [handler] */
  async startTask(input, handler) {
    await this.ready();
    return this.client.startTask(this.sessionId, input, handler);
  }

  #connect() {
    this.#set("connecting");
    this.#tell(this.ledger.begin(this.begin === "turn"));
    const { checkpoint } = this.ledger;
    const query = new URLSearchParams();
    if (checkpoint) query.set("last_event_id", checkpoint.id);
    if (checkpoint?.seq != null) query.set("last_seq", String(checkpoint.seq));
    if (checkpoint?.epoch != null) query.set("epoch", checkpoint.epoch);
    const url = `${this.client.url.replace(/^http/, "ws")}${this.client.path(this.sessionId, "/stream")}?${query}`;
    let socket;
    try {
      socket = new this.WebSocket(url, ["moorage.v1", `bearer.${this.client.token}`]);
    } catch (error) {
      return this.#fail(String(error));
    }
    let opened = false;
    this.#socket = socket;
    this.#timer("silence", 10_000, () => this.#lost(null, "no connection within 10 s", true));
    socket.onopen = () => {
      opened = true;
      this.#heard();
    };
    socket.onmessage = (message) => {
      this.#heard();
      this.#receive(socket, message.data);
    };
    socket.onclose = ({ code }) => this.#lost(code, code === 1006 ? "connection lost" : `closed with ${code}`, !opened);
  }

  #heard() {
    this.#timer("silence", SILENCE_MS, () => this.#lost(null, "silent for 45 s"));
  }

  /** @param {WebSocket} socket @param {any} data */
  #receive(socket, data) {
    let frame;
    try {
      frame = JSON.parse(data);
    } catch {
      frame = null;
    }
    const event = eventOf(frame);
    const place = placeOf(frame);
    try {
      if (event) this.#tell(this.ledger.event(event));
      else if (frame?.type === "ping") socket.send('{"type":"pong"}');
      else if (frame?.type === "ws_ready" && place) this.#ready(socket, place);
      else if (frame?.type === "replay_done" && place) {
        this.ledger.done(place.id);
        this.#settled();
      } else if (frame?.type === "replay_gap") {
        this.ledger.gap({ reason: String(frame.reason), oldest: frame.oldest ?? null, missed: frame.missed });
        this.#rebuild(socket);
      } else this.statistics.malformed++;
    } catch (error) {
      this.#lost(null, String(error));
    }
  }

  /** @param {WebSocket} socket @param {Checkpoint} head */
  #ready(socket, head) {
    this.ledger.ready(head);
    if (this.ledger.rebuilding) this.#rebuild(socket);
    else if (this.ledger.replaying) this.#set("replaying");
    else this.#settled();
  }

  /** Fetch the turn while the connection goes on bringing what follows it. @param {WebSocket} socket */
  async #rebuild(socket) {
    this.#set("replaying");
    const fetch = ++this.#fetches;
    const current = () => socket === this.#socket && fetch === this.#fetches;
    let turn = null;
    try {
      turn = await this.client.turn(this.sessionId);
    } catch (error) {
      if (!current()) return;
      if (isFinal(error)) this.#refused(error);
      else this.#lost(null, `cannot rebuild: ${error}`);
      return;
    }
    if (!current()) return;
    const [rebuilt, following] = this.ledger.rebuilt(turn);
    if (rebuilt) this.#call("rebuilt", rebuilt);
    try {
      for (const event of following) this.#tell(this.ledger.event(event));
      this.#settled();
      if (this.ledger.behind) this.#lost(null, "the turn is longer than one answer");
    } catch (error) {
      this.#lost(null, String(error));
    }
  }

  #settled() {
    this.#tries = this.#goodbyes = 0;
    this.#set("live");
    this.#tell([]);
  }

  /** Hand events on, save the checkpoint, watch over what is missing. @param {LogEvent[]} events */
  #tell(events) {
    for (const event of events) this.#call("event", event);
    const { checkpoint, hole, overflowing } = this.ledger;
    if (this.storage && checkpoint && checkpoint.id !== this.#saved) {
      this.#saved = checkpoint.id;
      try {
        this.storage.save(checkpoint);
      } catch (error) {
        console.error(error); // a full or forbidden storage must not stop the stream
      }
    }
    if (overflowing) return this.#lost(null, "too much is held back behind a missing event");
    if (!hole) this.#timer("hole");
    else if (!this.#timers.hole) this.#timer("hole", HOLE_MS, () => {
      const after = this.ledger.giveUp();
      after ? this.#tell(after) : this.#lost(null, "an event did not come");
    });
  }

  /** The connection is of no use any more.
   * @param {number|null} code @param {string} cause @param {boolean} [refused] before it was open */
  async #lost(code, cause, refused = false) {
    this.#leave();
    this.cause = cause;
    if (code === 1000) return this.#set("closed");
    if (code && code in REFUSALS) return this.#fail(REFUSALS[/** @type {4401|4404} */ (code)]);
    let pause = Math.min(MOST_MS, FIRST_MS * 2 ** this.#tries) * (1 - SPREAD + 2 * SPREAD * this.random());
    if (code && GOODBYES.includes(code))
      // A server that says goodbye to every connection must not be asked in a tight loop.
      pause = Math.min(MOST_MS, AT_ONCE_MS * 2 ** this.#goodbyes++) * this.random();
    else if (this.#tries++ === TRIES) return this.#fail(cause);
    this.#set("waiting");
    this.#timer("again", pause, () => this.#connect());
    if (refused) await this.#askWhy();
  }

  /** A browser does not tell a refused upgrade from a lost network; a plain request does. */
  async #askWhy() {
    const asked = this.#timers.again;
    try {
      await this.client.events(this.sessionId, "0-0", 1);
    } catch (error) {
      if (isFinal(error) && asked === this.#timers.again) this.#refused(error);
    }
  }

  /** @param {any} error */
  #refused(error) {
    this.#leave();
    this.#fail(error.error);
  }

  /** @param {string} cause */
  #fail(cause) {
    this.cause = cause;
    this.#set("failed");
  }

  #leave() {
    for (const name of Object.keys(this.#timers)) this.#timer(name);
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.onerror = () => {}; // Node's WebSocket raises errors that nobody listens for
    socket.close();
  }

  /** Set or, without a function, take away. @param {string} name @param {number} [ms] @param {() => void} [action] */
  #timer(name, ms, action) {
    clearTimeout(this.#timers[name]);
    this.#timers[name] = action && setTimeout(() => {
      this.#timers[name] = undefined;
      action();
    }, ms);
  }

  /** @param {StreamState} state */
  #set(state) {
    if (state === this.state) return;
    this.state = state;
    this.#call("state", state, this.cause);
  }

  /** @param {string} name @param {...any} args */
  #call(name, ...args) {
    for (const listener of [...this.#listeners[name]]) {
      try {
        listener(...args);
      } catch (error) {
        console.error(error);
      }
    }
  }
}
