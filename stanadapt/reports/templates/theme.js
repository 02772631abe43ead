"use strict";
// Switches between the system's theme, dark and light.
(() => {
  const button = document.querySelector("button.theme");
  const names = ["automatic", "dark", "light"];
  let place = 0;
  button.hidden = false;
  button.addEventListener("click", () => {
    place = (place + 1) % names.length;
    const root = document.documentElement;
    if (place === 0) delete root.dataset.theme;
    else root.dataset.theme = names[place];
    button.querySelector("span").textContent = names[place];
  });
})();
