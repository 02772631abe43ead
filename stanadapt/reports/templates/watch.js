"use strict";
// Follows the run: asks for the state, and fetches the page's content when there is a new version of it.
// While the reader's focus is inside the content, nothing changes; a button offers the new version instead.
(() => {
  const PAUSE = 2000;
  const live = document.getElementById("live");
  const news = document.getElementById("news");
  const renew = document.getElementById("renew");
  let version = Number(news.dataset.version);
  let over = "over" in news.dataset;
  let failures = 0;

  const say = (text) => { news.textContent = text; };
  const ask = async (name) => {
    const answer = await fetch(name, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.json();
  };
  const colours = document.createElement("style");
  document.head.append(colours);

  const take = async () => {
    const state = await ask("contents");
    const kept = window.tableStates(live);
    live.innerHTML = state.html;
    colours.textContent =
      `@media screen and (prefers-color-scheme: dark) { :root:not([data-theme="light"]) { ${state.colours} } }` +
      `@media screen { :root[data-theme="dark"] { ${state.colours} } }`;
    window.beginTables(live, kept);
    window.beginCopying(live);
    renew.hidden = true;
    ({ version, over } = state);
    say(over ? "The run has ended. This page changes no more." : `Brought up to date at ${new Date().toLocaleTimeString()}.`);
  };
  const look = async () => {
    try {
      const state = await ask("state");
      failures = 0;
      if (state.version > version) {
        if (live.contains(document.activeElement) && !state.over) renew.hidden = false;
        else await take();
      }
    } catch {
      failures += 1;
      if (failures > 2) {
        say("The server does not answer any more. This page shows the last state that it sent.");
        return;
      }
    }
    if (!over) setTimeout(look, PAUSE);
  };
  renew.addEventListener("click", async () => {
    await take();
    live.querySelector("h1")?.scrollIntoView();
  });
  // Tells the server not to wait for this page when the run ends.
  addEventListener("pagehide", () => { fetch("gone", { keepalive: true }).catch(() => {}); });
  if (over) say("The run has ended. This page changes no more.");
  else look();
})();
