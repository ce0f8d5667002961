// The chat page: which session is shown, what the buttons do, and when events count as shown.

import { TrilaneClient, newId } from "./client.js";
import { byId, el } from "./dom.js";
import { Lanes } from "./lanes.js";
import { Transcript } from "./transcript.js";

const TERMINAL = new Set(["run_completed", "run_failed", "run_cancelled"]);
const base = new URL(".", document.baseURI);

const state = { session: "", run: "", running: false, sessions: [], resumable: false, opening: 0 };
const left = new Set(); // runs that are not shown any more, of which events may still be on their way

// ---- identity -----------------------------------------------------------------------------------------------------------

function stored(key, make) {
  try {
    const found = sessionStorage.getItem(key);
    if (found !== null) return found;
    const made = make();
    sessionStorage.setItem(key, made);
    return made;
  } catch {
    return make();
  }
}

function takeToken() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const token = fragment.get("token");
  if (token !== null) {
    fragment.delete("token");
    history.replaceState(null, "", fragment.size ? `#${fragment}` : location.pathname);
    try {
      sessionStorage.setItem("trilane-token", token);
    } catch {
      return token;
    }
  }
  return token ?? stored("trilane-token", () => "");
}

const token = takeToken();
const socketUrl = new URL("ws", base);
socketUrl.protocol = socketUrl.protocol === "https:" ? "wss:" : "ws:";
const client = new TrilaneClient(socketUrl, { token, client: stored("trilane-client", newId), lanes: true });

async function api(method, path, body) {
  const headers = { accept: "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(new URL(`api/${path}`, base), { method, headers, body: body && JSON.stringify(body) });
  const value = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(value.message), { code: value.code });
  return value;
}

// ---- parts of the page --------------------------------------------------------------------------------------------------

const transcript = new Transcript(byId("transcript"), {
  reply: (question, payload) => client.reply(question.session_id || state.session, question.id, payload),
  announce: (text) => (byId("announce").textContent = text),
  fork,
  retry,
});
const lanes = new Lanes(byId("lanes"));
const composer = byId("composer");
const box = byId("message");

function showRunning(running) {
  state.running = running;
  byId("stop").hidden = !running;
  byId("send").textContent = running ? "Steer" : "Send";
  box.placeholder = running ? "Say something while it works" : "Ask something";
  document.body.classList.toggle("running", running);
  showNotice();
}

function showNotice() {
  const notice = byId("notice");
  notice.hidden = state.running || !state.resumable;
  if (notice.hidden) return;
  const again = el("button", { type: "button", class: "primary", id: "resume" }, "Continue");
  again.addEventListener("click", resume);
  notice.replaceChildren(el("span", {}, "The last run did not complete. "), again);
}

function complain(error) {
  const text = error.code === "lost" ? "The connection was lost; look whether this arrived." : error.message;
  transcript.node.append(el("p", { class: "note error", role: "alert" }, text));
  transcript.scroll();
}

// ---- sessions -----------------------------------------------------------------------------------------------------------

async function listSessions() {
  try {
    state.sessions = (await api("GET", "sessions")).sessions;
  } catch {
    return; // shown when the connection is back
  }
  byId("session-list").replaceChildren(
    ...state.sessions.map((session) => {
      const name = session.title || session.preview || session.id.slice(0, 12);
      const button = el(
        "button",
        { type: "button", class: "session", title: name, "aria-current": session.id === state.session ? "true" : null },
        el("span", { class: "session-name" }, name),
        session.active ? el("span", { class: "dot", role: "img", "aria-label": "running" }) : null,
      );
      button.addEventListener("click", () => openSession(session.id));
      return el("li", {}, button);
    }),
  );
}

async function openSession(id, { replace = false } = {}) {
  const turn = (state.opening += 1);
  if (state.run) {
    left.add(state.run);
    client.unwatch(state.run).catch(() => {});
  }
  Object.assign(state, { session: id, run: "", resumable: false });
  const fragment = id ? `#s=${encodeURIComponent(id)}` : location.pathname;
  history[replace ? "replaceState" : "pushState"](null, "", fragment);
  transcript.clear();
  lanes.reset();
  showRunning(false);
  closeDrawer();
  listSessions();
  if (!id) {
    welcome();
    box.focus();
    return;
  }
  try {
    const session = await api("GET", `sessions/${encodeURIComponent(id)}`);
    if (turn !== state.opening) return;
    transcript.showHistory(session);
    state.resumable = session.resumable;
    if (session.run) {
      left.delete(session.run);
      state.run = session.run;
      showRunning(true);
      await client.watch(id, session.run, 0);
    }
    showNotice();
  } catch (error) {
    if (turn !== state.opening) return;
    if (error.code === "not_found") openSession("", { replace: true });
    else complain(error);
  }
}

function welcome() {
  const agent = client.welcome?.agent ?? "the agent";
  transcript.node.append(el("p", { class: "welcome" }, `This is a new session with ${agent}.`));
}

async function fork(messageId) {
  try {
    const made = await api("POST", `sessions/${encodeURIComponent(state.session)}/fork`, { at_message: messageId });
    await openSession(made.session);
  } catch (error) {
    complain(error);
  }
}

/** Ask again what `message` asked, in a new session that holds what was said before it. The old one stays as it is. */
async function retry(message) {
  try {
    const messages = await storedWith(message);
    const at = messages.findIndex((one) => one.id === message.id);
    const text = message.parts.filter((part) => part.kind === "text").map((part) => part.text).join("\n");
    const before = messages[at - 1];
    const made = before && (await api("POST", `sessions/${encodeURIComponent(state.session)}/fork`, { at_message: before.id }));
    await openSession(made?.session ?? "");
    await send(text);
  } catch (error) {
    complain(error);
  }
}

/** The stored messages of the session, `message` among them: the last ones come when the server has put its run away. */
async function storedWith(message) {
  for (let tries = 0; tries < 50; tries += 1) {
    const { messages } = await api("GET", `sessions/${encodeURIComponent(state.session)}`);
    if (messages.some((one) => one.id === message.id)) return messages;
    await new Promise((resume) => setTimeout(resume, 100));
  }
  throw new Error("This is not stored, so it cannot be asked again.");
}

// ---- runs ---------------------------------------------------------------------------------------------------------------

async function submit() {
  const text = box.value.trim();
  if (!text) return;
  box.value = "";
  grow();
  await send(text);
}

async function send(text) {
  try {
    if (state.running) {
      await client.steer(state.session, text);
    } else {
      transcript.node.querySelector(".welcome")?.remove();
      state.resumable = false;
      showRunning(true);
      attach(await client.start(text, { session: state.session || null }));
    }
  } catch (error) {
    if (!state.run) showRunning(false);
    box.value = box.value || text;
    complain(error);
  }
}

function attach(answer) {
  const isNew = state.session !== answer.session;
  Object.assign(state, { session: answer.session, run: answer.run });
  if (isNew) history.replaceState(null, "", `#s=${encodeURIComponent(answer.session)}`);
  listSessions();
}

async function resume() {
  state.resumable = false;
  showRunning(true);
  try {
    attach(await client.resume(state.session));
  } catch (error) {
    showRunning(false);
    complain(error);
  }
}

async function stop() {
  const button = byId("stop");
  button.disabled = true;
  try {
    await client.stop(state.session);
  } catch (error) {
    if (error.code !== "not_running") complain(error);
  } finally {
    button.disabled = false;
  }
}

/** Calls `then` when what was drawn is on the screen; at once if nobody can see the page. */
function whenShown(then) {
  if (document.hidden) then();
  else requestAnimationFrame(then);
}

client.addEventListener("events", ({ detail: { session, run, events } }) => {
  if (left.has(run)) return;
  // Events of a run that was just started come before the answer that names its session.
  if (!state.run && (session === state.session || !state.session)) Object.assign(state, { run, session });
  if (run !== state.run) return;
  for (const event of events) {
    transcript.apply(event);
    lanes.apply(event);
    document.body.dataset.seq = event.seq; // how far the page is, for whoever looks at it from outside
  }
  transcript.flush();
  const last = events.at(-1);
  whenShown(() => client.acknowledge(run, last.seq));
  if (TERMINAL.has(last.type)) {
    state.run = "";
    state.resumable = last.type !== "run_completed";
    showRunning(false);
    listSessions();
  }
});

client.addEventListener("notification", ({ detail }) => {
  if (detail.run === state.run) lanes.notify(detail);
});
client.addEventListener("gap", ({ detail }) => {
  if (detail.run === state.run) transcript.gap();
});
client.addEventListener("gone", ({ detail }) => {
  // The server was restarted, or has forgotten the run: what is stored says how it stands.
  if (detail.run === state.run) openSession(state.session, { replace: true });
});

client.addEventListener("welcome", ({ detail }) => {
  byId("agent").textContent = detail.agent;
  document.title = detail.agent;
  listSessions();
});

client.addEventListener("status", ({ detail }) => {
  const words = { connecting: "connecting", online: "connected", offline: "no connection", refused: "refused" };
  const shown = byId("connection");
  shown.textContent = detail.reason ?? words[detail.state];
  shown.dataset.state = detail.state;
  if (detail.code === "not_authenticated") askForToken();
});

function askForToken() {
  const input = el("input", { type: "password", id: "token", autocomplete: "current-password", required: true });
  const form = el("form", { class: "token" }, el("label", { for: "token" }, "Token of this server"), input, el("button", { type: "submit", class: "primary" }, "Enter"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    try {
      sessionStorage.setItem("trilane-token", input.value);
      location.reload();
    } catch {
      location.replace(`#token=${encodeURIComponent(input.value)}`);
    }
  });
  transcript.clear();
  transcript.node.append(form);
  input.focus();
}

// ---- the rest of the page -----------------------------------------------------------------------------------------------

function grow() {
  box.style.height = "auto";
  box.style.height = `${Math.min(box.scrollHeight, innerHeight * 0.4)}px`;
}

function setDrawer(open) {
  byId("sessions").classList.toggle("open", open);
  byId("show-sessions").setAttribute("aria-expanded", String(open));
}

function closeDrawer() {
  setDrawer(false);
}

function setLanes(open) {
  byId("lanes").hidden = !open;
  byId("show-lanes").setAttribute("aria-expanded", String(open));
  if (open) lanes.shown();
}

composer.addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
box.addEventListener("input", grow);
box.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    submit();
  }
});
byId("stop").addEventListener("click", stop);
byId("new-session").addEventListener("click", () => openSession(""));
byId("show-sessions").addEventListener("click", () => setDrawer(!byId("sessions").classList.contains("open")));
byId("show-lanes").addEventListener("click", () => setLanes(byId("lanes").hidden));
byId("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("trilane-theme", dark ? "light" : "dark");
  } catch {
    // It holds for this visit then.
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (byId("sessions").classList.contains("open")) {
    closeDrawer();
    byId("show-sessions").focus();
  } else if (!byId("lanes").hidden) {
    setLanes(false);
    byId("show-lanes").focus();
  }
});
addEventListener("online", () => client.retryNow());
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) client.retryNow();
});
addEventListener("popstate", () => openSession(sessionOfAddress(), { replace: true }));

function sessionOfAddress() {
  return new URLSearchParams(location.hash.slice(1)).get("s") ?? "";
}

client.connect();
openSession(sessionOfAddress(), { replace: true });
