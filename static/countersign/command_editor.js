/* Asks the server what is wrong with a command while it is typed. Without this script the same is
   said when the draft is kept; nothing is decided here. */
"use strict";

(() => {
  const form = document.getElementById("cs-editor");
  if (!form) return;
  const text = document.getElementById("cs-yaml");
  const place = (id) => document.getElementById(id);
  let asked = 0;
  let timer = 0;

  const show = (report) => {
    place("cs-verdict").firstElementChild.textContent =
      report.ok ? "It passes every check." : "It cannot be signed yet.";
    const list = place("cs-problems");
    list.replaceChildren(...report.problems.map((problem) => {
      const item = document.createElement("li");
      const field = document.createElement("span");
      field.className = "cs-mono";
      field.textContent = problem.field || "document";
      item.append(field, `: ${problem.reason}`);
      return item;
    }));
    place("cs-serial").textContent = `${report.serial ?? "—"} (next: ${report.suggested_serial})`;
    place("cs-size").textContent = `${report.size} bytes`;
    place("cs-digest").textContent = report.digest || "—";
    place("cs-diff").textContent = report.difference || "no difference";
  };

  const ask = async () => {
    const number = ++asked;
    const body = new FormData(form);
    body.append("name", form.dataset.name);
    try {
      const answer = await fetch(form.dataset.check, { method: "POST", body, credentials: "same-origin" });
      if (answer.ok && number === asked) show(await answer.json());
    } catch {
      /* The server is away; keeping the draft will say so. */
    }
  };

  text.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, 350);
  });
})();
