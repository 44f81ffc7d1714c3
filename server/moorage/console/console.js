/** The page at /console: sign in, start a task, watch its events, cut the connection and resume it. */

import { EventStream, Moorage, MoorageError, storedAt } from "../client/moorage.js";
import { ownKey } from "./key.js";
import { EventList } from "./list.js";

const TOKEN = "moorage:token";
const SESSION = "moorage:session";
const BLIP_MS = 3000;

/** @param {string} id @returns {any} */
const $ = (id) => document.getElementById(id);

const client = new Moorage(new URL("..", import.meta.url).href, sessionStorage.getItem(TOKEN));
const list = new EventList($("events"));
/** @type {EventStream|null} */
let stream = null;
/** @type {{questionId: string}|null} */
let question = null;
let blip = 0;
/** What is known of the latest turn; empty: nothing. */
let turnStatus = "";

/** @param {string} text empty: all is well */
function problem(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
}

/** Run what a control asks for, and say what went wrong. @param {() => Promise<any>} work */
async function attempt(work) {
  problem("");
  try {
    await work();
  } catch (error) {
    if (error instanceof MoorageError && error.status === 401) signOut();
    problem(error instanceof Error ? error.message : String(error));
  }
}

/** @param {string} id @param {string} event @param {(event: any) => any} work */
function when(id, event, work) {
  $(id).addEventListener(event, (/** @type {Event} */ happened) => {
    happened.preventDefault();
    attempt(async () => work(happened));
  });
}

function show() {
  const signedIn = client.token !== null;
  $("entry").hidden = signedIn;
  $("desk").hidden = !signedIn;
  $("sign-out").hidden = $("who").hidden = !signedIn;
  if (signedIn) $("who").textContent = accountOf(client.token ?? "");
}

/** The account a token names, shortened. @param {string} token */
function accountOf(token) {
  try {
    const payload = JSON.parse(atob(token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/")));
    return `account ${String(payload.sub ?? "").slice(0, 12)}`;
  } catch {
    return "signed in";
  }
}

async function signedIn() {
  const sessions = await client.sessions(); // says whether the token is good
  sessionStorage.setItem(TOKEN, client.token ?? "");
  show();
  $("tags").replaceChildren(...sessions.map((/** @type {any} */ { tag }) => new Option(tag, tag)));
  const last = sessions.find((/** @type {any} */ { id }) => id === sessionStorage.getItem(SESSION));
  if (last) openSession(last);
  else $("tag").focus();
}

function signOut() {
  stream?.close();
  stream = null;
  client.token = null;
  sessionStorage.clear();
  list.clear();
  show();
}

/** @param {{id: string, tag: string}} session @param {boolean} [fresh] it was just made, so it had no task yet */
function openSession({ id, tag }, fresh = false) {
  stream?.close();
  clearTimeout(blip);
  sessionStorage.setItem(SESSION, id);
  $("tag").value = tag;
  $("log-title").textContent = `Events of ${tag}`;
  list.clear();
  ask(null);
  status("");
  const storage = storedAt(sessionStorage, `moorage:checkpoint:${id}`);
  // After a reload nothing is on the page, so the turn comes first; what came since the checkpoint was not seen.
  list.seenUpTo = storage.load()?.seq ?? null;
  const begin = fresh ? "beginning" : "turn"; // to ask for a turn that cannot be there is an error in the browser's log
  const opened = new EventStream(client, id, { begin, storage: { load: () => null, save: storage.save } });
  stream = opened;
  opened.on("state", () => stream === opened && showState());
  opened.on("event", (event) => {
    list.add(event);
    follow(event);
    counted();
  });
  opened.on("rebuilt", (rebuilt) => {
    list.rebuild(rebuilt);
    ask(rebuilt.turn?.question ?? null);
    status(rebuilt.turn?.status ?? "");
    counted();
  });
  opened.open();
}

/** @param {import("../client/moorage.js").LogEvent} event */
function follow({ type, data, replayed }) {
  if (type === "session_created") status("running");
  if (type === "question" && !(replayed && data?.untilMs < Date.now())) ask(data);
  if (type === "task_result") {
    ask(null);
    status("ended");
  }
}

/** @param {string} text */
function status(text) {
  turnStatus = text;
  const live = stream?.state === "live" || stream?.state === "replaying";
  $("turn").textContent = text && `· latest turn${live ? "" : ", when last heard"}: ${text}`;
}

/** @param {any} asked null: nothing is asked any more */
function ask(asked) {
  question = asked;
  $("question").hidden = !asked;
  if (!asked) return;
  const text = asked.question?.text ?? asked.question;
  $("question-text").textContent = typeof text === "string" ? text : JSON.stringify(text);
  const options = asked.question?.options;
  $("answer").placeholder = Array.isArray(options) ? options.join(" / ") : "";
  $("answer").value = "";
  // Whoever is typing elsewhere is left alone.
  if (document.activeElement === document.body || document.activeElement === $("start")) $("answer").focus();
}

function showState() {
  const state = stream?.state ?? "closed";
  const away = state === "closed" || state === "failed";
  $("state").value = $("state").dataset.state = state;
  $("cause").textContent = state === "waiting" || state === "failed" ? stream?.cause ?? "" : "";
  $("start").disabled = state !== "live";
  $("cut").disabled = $("blip").disabled = !stream || away;
  $("resume").disabled = !stream || state === "live" || state === "replaying";
  status(turnStatus);
  counted();
}

let drawing = 0;

/** Show the counts, at most once a frame. */
function counted() {
  drawing ||= requestAnimationFrame(() => {
    drawing = 0;
    const counts = /** @type {Record<string, number>} */ (stream?.statistics ?? {});
    for (const cell of document.querySelectorAll("[data-count]")) {
      const name = /** @type {HTMLElement} */ (cell).dataset.count ?? "";
      cell.textContent = String(counts[name] ?? 0);
      cell.classList.toggle("some", name === "missed" && counts.missed > 0);
    }
  });
}

function resume() {
  clearTimeout(blip);
  if (stream?.state === "waiting" || stream?.state === "connecting") stream.reconnect();
  else stream?.open();
}

when("use-key", "click", async () => {
  await client.signIn(await ownKey());
  await signedIn();
});
when("use-token", "submit", async () => {
  client.token = $("token").value.trim();
  await signedIn();
  $("token").value = "";
});
when("sign-out", "click", signOut);
when("open-session", "submit", async () => {
  const wanted = $("tag").value.trim();
  const known = await client.sessions();
  const fresh = !known.some((/** @type {any} */ { tag }) => tag === wanted);
  openSession(await client.createSession(wanted), fresh);
});
when("start-task", "submit", async () => {
  let input;
  try {
    input = JSON.parse($("input").value || "null");
  } catch (error) {
    $("input").focus();
    throw new Error(`The input is not JSON: ${error instanceof Error ? error.message : error}`);
  }
  await stream?.startTask(input, $("handler").value.trim() || undefined);
});
when("question", "submit", async () => {
  if (!question || !stream) return;
  await client.reply(stream.sessionId, question.questionId, $("answer").value);
  ask(null);
});
when("cut", "click", () => {
  stream?.close();
  $("resume").focus();
});
when("blip", "click", () => {
  stream?.close();
  blip = window.setTimeout(resume, BLIP_MS);
});
when("resume", "click", () => {
  resume();
  $("cut").focus();
});

if (!(await Moorage.hasKeys())) {
  $("use-key").disabled = true;
  $("no-key").hidden = false;
}
show();
if (client.token !== null) attempt(signedIn);
