/* Counts an approval's time down, keeps ages fresh, and greys the answers out when the time is over
   or something has changed: it asks the server now and then, with a GET that changes nothing.
   The server decides in any case; this only saves a click that could not count. */
"use strict";

(() => {
  const clock = document.getElementById("cs-clock");
  const form = document.getElementById("cs-decide");
  const ages = document.querySelectorAll("[data-since]");
  if (!clock && !ages.length) return;

  const two = (number) => String(number).padStart(2, "0");
  const words = (seconds) =>
    seconds < 90 ? `${seconds} s ago` : `${Math.round(seconds / 60)} min ago`;
  const remaining = (seconds) => {
    const [days, hours, minutes] = [86400, 3600, 60].map((unit) => Math.floor(seconds / unit));
    if (days) return `${days} d ${hours % 24} h`;
    if (hours) return `${hours}:${two(minutes % 60)}:${two(seconds % 60)}`;
    return `${minutes}:${two(seconds % 60)}`;
  };

  let closed = !form || form.querySelector("button:disabled") !== null;

  const close = (sentence) => {
    if (closed) return;
    closed = true;
    for (const control of form.querySelectorAll("button, input:not([type=hidden])")) control.disabled = true;
    const note = document.createElement("p");
    note.setAttribute("role", "alert");
    const again = document.createElement("a");
    again.className = "cs-link";
    again.href = location.pathname;
    again.textContent = "Load this page again";
    note.append(`${sentence} Nothing was sent. `, again, ".");
    form.append(note);
  };

  const over = () => {
    clock.textContent = "0:00";
    close("The time for this review is over.");
  };

  const ask = async () => {
    if (closed || document.hidden) return;
    try {
      const answer = await fetch(form.dataset.standing, { credentials: "same-origin", headers: { Accept: "application/json", "X-Requested-With": "clock" } });
      if (answer.redirected || answer.status === 403) { close("You are not logged in any more."); return; }
      if (!answer.ok && answer.status !== 404) return;
      const { says } = await answer.json();
      if (says) close(says);
    } catch {
      /* Not reached: whoever presses a button will be told. */
    }
  };

  const tick = () => {
    const now = Date.now();
    for (const age of ages) age.textContent = words(Math.max(0, Math.round((now - Date.parse(age.dataset.since)) / 1000)));
    if (!clock) return true;
    const left = Math.floor((Date.parse(clock.dataset.until) - now) / 1000);
    if (left <= 0) { over(); return false; }
    clock.textContent = remaining(left);
    clock.dataset.left = left < 60 ? "low" : "enough";
    return true;
  };

  if (tick()) {
    const timer = setInterval(() => { if (!tick()) clearInterval(timer); }, 1000);
  }
  if (form && form.dataset.standing && !closed) {
    setInterval(ask, 4000);
    document.addEventListener("visibilitychange", ask);
  }
})();
