/** The list of events: one row an event; a step that runs again, and text that grows, change their row. */

/** @typedef {import("../client/moorage.js").LogEvent} LogEvent */

const MAX_ROWS = 2000;
const AT_END_PX = 40; // nearer to the end than this: the list follows

/** What an event says, in a line or a few. @param {any} data @returns {string} */
function textOf(data) {
  if (data === null || data === undefined) return "";
  if (typeof data !== "object") return String(data);
  const entries = Object.entries(data);
  if (Array.isArray(data) || !entries.length) return JSON.stringify(data);
  if (entries.length === 1 && typeof data.text === "string") return data.text;
  const plain = (/** @type {any} */ value) => (typeof value === "string" ? value : JSON.stringify(value));
  return entries.map(([name, value]) => `${name}: ${plain(value)}`).join(" · ");
}

/** The growing part of a transient event, if it is text. @param {any} data @returns {string|null} */
function deltaOf(data) {
  const delta = typeof data === "string" ? data : data?.text ?? data?.delta;
  return typeof delta === "string" ? delta : null;
}

export class EventList {
  /** Events up to this number were on the page before it was loaded anew. @type {number|null} */
  seenUpTo = null;
  /** @type {Map<string, HTMLElement>} rows of the running turn by the key of their step */
  #steps = new Map();
  /** @type {{row: HTMLElement, type: string, key: string|null}|null} */
  #growing = null;

  /** The reader is at the end and wants to stay there. */
  #follows = true;
  #scrolling = 0;

  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    element.addEventListener("scroll", () => {
      const { scrollTop, clientHeight, scrollHeight } = element;
      this.#follows = scrollHeight - scrollTop - clientHeight < AT_END_PX;
    });
    new ResizeObserver(() => this.#follow()).observe(element);
  }

  clear() {
    this.element.replaceChildren();
    this.#steps.clear();
    this.#growing = null;
    this.#follows = true;
  }

  /** @param {LogEvent} event */
  add(event) {
    this.#follow();
    if (event.id === null && this.#grow(event)) return;
    this.#growing = null;
    if (event.type === "session_created") this.#steps.clear();
    const row = this.#row(String(event.seq ?? "–"), event.type, textOf(event.data));
    if (event.id === null) this.#mark(row, "not logged", "transient");
    if (event.key !== null) this.#mark(row, event.key, "", "key");
    if (event.replayed) this.#mark(row, "replayed");
    if (event.type === "unlogged") row.classList.add("unlogged");
    this.#place(row, event);
  }

  /** @param {import("../client/moorage.js").Rebuilt} rebuilt */
  rebuild({ turn, gap, missed }) {
    this.clear();
    if (gap) {
      const lost = missed === null ? "an unknown number of events is" : `${missed} events are`;
      const row = this.#row("", "gap", `${gap.reason}: ${lost} lost; shown is the latest turn as it stands`);
      row.classList.add("gap");
      this.element.append(row);
    }
    if (turn?.truncated) this.element.append(this.#row("", "…", "the beginning of this turn is no longer kept"));
    for (const event of turn?.events ?? []) {
      const unseen = this.seenUpTo !== null && (event.seq ?? 0) > this.seenUpTo;
      this.add({ ...event, replayed: unseen });
    }
    this.seenUpTo = null;
    const ended = turn?.status === "done" || turn?.status === "failed";
    if (turn && ended && !turn.events.some(({ type }) => type === "task_result")) {
      // The truth about a task does not hang on its events.
      const { status, result, error } = turn;
      const told = error === undefined ? { status, result } : { status, error };
      this.element.append(this.#row("", "task_result", textOf(told)));
    }
  }

  /** Text that arrives in pieces is one row. @param {LogEvent} event */
  #grow(event) {
    const delta = deltaOf(event.data);
    const growing = this.#growing;
    if (delta === null) return false;
    if (growing?.type === event.type && growing.key === event.key && growing.row.isConnected) {
      growing.row.children[2].append(delta);
      return true;
    }
    const row = this.#row("–", event.type, delta);
    row.classList.add("transient");
    this.#mark(row, "not logged");
    if (event.key !== null) this.#mark(row, event.key, "", "key");
    this.#append(row);
    this.#growing = { row, type: event.type, key: event.key };
    return true;
  }

  /** @param {HTMLElement} row @param {LogEvent} event */
  #place(row, { id, type, key }) {
    const step = key === null ? null : `${type} ${key}`;
    const before = step === null ? undefined : this.#steps.get(step);
    if (before?.isConnected) {
      this.#mark(row, "again");
      before.replaceWith(row);
    } else this.#append(row);
    if (step !== null && id !== null) this.#steps.set(step, row);
  }

  /** @param {HTMLElement} row */
  #append(row) {
    this.element.append(row);
    if (this.element.childElementCount > MAX_ROWS) this.element.firstElementChild?.remove();
  }

  /** @param {string} seq @param {string} type @param {string} text */
  #row(seq, type, text) {
    const row = document.createElement("li");
    row.dataset.type = type;
    for (const [name, content] of [["seq", seq], ["type", type], ["text", text], ["marks", ""]]) {
      const cell = document.createElement("span");
      cell.className = name;
      cell.textContent = content;
      row.append(cell);
    }
    return row;
  }

  /** @param {HTMLElement} row @param {string} text @param {string} [rowClass] @param {string} [kind] */
  #mark(row, text, rowClass, kind = text.replace(" ", "-")) {
    const mark = document.createElement("span");
    mark.className = `mark ${kind}`;
    mark.textContent = mark.title = text;
    row.children[3].append(mark);
    if (rowClass) row.classList.add(rowClass);
  }

  /** Once a frame, however many events came. */
  #follow() {
    if (!this.#follows) return;
    this.#scrolling ||= requestAnimationFrame(() => {
      this.#scrolling = 0;
      this.element.scrollTop = this.element.scrollHeight;
    });
  }
}
