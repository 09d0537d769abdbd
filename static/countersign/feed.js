/* The live feed. The list in the page is the truth as of loading; this adds what comes after it.

   It resumes after a drop from the last event it saw, acknowledges what it took (the server sends a
   `gap` to those who do not keep up), and says in words when what it shows may be old. Without a
   websocket the page stays as it was. */
"use strict";

(() => {
  const KEEP = 200;              // lines kept in the page
  const QUIET = 45_000;          // ms without any frame after which the feed calls itself stale
  const FIRST_WAIT = 500;        // ms before the first try to reconnect
  const LONGEST_WAIT = 5_000;
  const NOT_ALLOWED = 4401;      // close codes of the server
  const BAD_CURSOR = 4400;

  const box = document.getElementById("cs-live");
  const list = document.getElementById("cs-feed");
  const state = document.getElementById("cs-feed-state");
  const kind = document.getElementById("cs-feed-kind");
  const project = document.getElementById("cs-feed-project");
  if (!box || !list || !("WebSocket" in window)) return;

  let cursor = Number(box.dataset.cursor) || 0;
  let wait = FIRST_WAIT;
  let socket = null;
  let silence = 0;
  let refreshing = 0;

  const say = (name, text) => { state.dataset.state = name; state.textContent = text; };
  const clock = () => new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });

  const TONES = [
    [/(unknown|failed|failing|interrupted|refused|rejected|quarantined|revoked)$/, "bad"],
    [/(held|pending|opened|expired|superseded|waiting_approval|changes_requested)$/, "warn"],
    [/(accepted|verified|completed|succeeded|approved|consumed|recovered|loaded|pinned)$/, "ok"],
  ];
  const toneOf = (name) => (TONES.find(([pattern]) => pattern.test(name)) || [0, "info"])[1];

  const element = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const subjectOf = (subject) => {
    const [app, model] = String(subject.type).split(".");
    const short = subject.id.length > 12 ? subject.id.slice(0, 8) : subject.id;
    const link = element("a", "cs-link", `${model || app} ${short}`);
    if (model) link.href = `${box.dataset.base || "/admin/"}${app}/${model}/${encodeURIComponent(subject.id)}/change/`;
    return link;
  };

  const actorOf = (actor) => {
    const [kindOf, name = ""] = String(actor).split(/:(.*)/s);
    return kindOf.includes(".") ? `${kindOf.split(".").pop()} ${name.slice(0, 8)}` : actor;
  };

  const shown = (line) =>
    (!kind.value || (line.dataset.kind || "").startsWith(`${kind.value}.`)) &&
    (!project.value || line.dataset.project === project.value);
  const filter = () => { for (const line of list.children) line.hidden = !shown(line); };

  const add = (event) => {
    if (event.seq <= cursor) return;
    cursor = event.seq;
    const line = element("li", "cs-fresh");
    Object.assign(line.dataset, { seq: event.seq, kind: event.kind, project: event.project || "" });
    const dot = element("span", `cs-dot cs-${toneOf(event.kind)}`);
    dot.setAttribute("aria-hidden", "true");
    const when = element("time", "", new Date(event.at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" }));
    when.dateTime = event.at;
    when.title = new Date(event.at).toLocaleString();
    const detail = element("span", "cs-line");
    detail.append(
      element("span", "cs-seq", `#${event.seq}`), " · ", element("span", "cs-mono", event.kind),
      " · ", subjectOf(event.subject), ` · ${actorOf(event.actor)}`,
    );
    line.append(dot, element("span", "cs-kind", event.text || event.kind), when, detail);
    list.querySelector("[data-empty]")?.remove();
    line.hidden = !shown(line);
    list.prepend(line);
    while (list.children.length > KEEP) list.lastElementChild.remove();
  };

  /* The page itself is the way back to the truth: fetch it again and take over its pieces. A piece
     that somebody is in the middle of using is left alone. */
  const pieces = (page, selector) => {
    for (const fresh of page.querySelectorAll(selector)) {
      const old = document.getElementById(fresh.id);
      if (old && !old.contains(document.activeElement) && old.innerHTML !== fresh.innerHTML) old.replaceChildren(...fresh.childNodes);
    }
  };
  const fetchPage = async () => {
    const answer = await fetch(location.pathname, { credentials: "same-origin", headers: { Accept: "text/html", "X-Requested-With": "feed" } });
    if (!answer.ok || answer.redirected) throw new Error("the page is not there");
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  };
  const refresh = () => {
    clearTimeout(refreshing);
    refreshing = setTimeout(() => fetchPage().then((page) => pieces(page, "[data-live]")).catch(() => {}), 700);
  };

  const gap = async (frame) => {
    say("gap", "events were missed: reading them again");
    try {
      const page = await fetchPage();
      list.replaceChildren(...page.getElementById("cs-feed").childNodes);
      pieces(page, "[data-live]");
      cursor = Math.max(Number(frame.head) || 0, Number(page.getElementById("cs-live").dataset.cursor) || 0);
      filter();
      socket.send(JSON.stringify({ ack: Number(frame.head) || cursor }));
      say("live", "live, after a gap");
    } catch {
      say("gap", `some events are missing (up to #${frame.head}): reload the page`);
    }
  };

  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => say("stale", `may be old: last heard ${clock()}`), QUIET);
  };

  const take = (message) => {
    heard();
    const frame = JSON.parse(message.data);
    if (frame.type === "gap") { gap(frame); return; }
    if (state.dataset.state !== "gap") say("live", "live");
    if (frame.type !== "event") return;
    add(frame.event);
    socket.send(JSON.stringify({ ack: frame.event.seq }));
    refresh();
  };

  const closed = (event) => {
    clearTimeout(silence);
    if (event.code === NOT_ALLOWED) { say("stale", "not live: log in again"); return; }
    if (event.code === BAD_CURSOR) cursor = 0;
    say("stale", `not connected since ${clock()}: trying again`);
    setTimeout(connect, wait * (0.75 + Math.random() / 2));
    wait = Math.min(wait * 2, LONGEST_WAIT);
  };

  const connect = () => {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    socket = new WebSocket(`${scheme}://${location.host}${box.dataset.path}?cursor=${cursor}`);
    socket.addEventListener("open", () => { wait = FIRST_WAIT; say("live", "live"); heard(); });
    socket.addEventListener("message", take);
    socket.addEventListener("close", closed);
  };

  kind.addEventListener("change", filter);
  project.addEventListener("change", filter);
  connect();
})();
