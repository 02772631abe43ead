"use strict";
// Links within the page, and buttons that copy code. Inside of a notebook's frame the browser would take
// "#chains" for an address of the notebook's page.
(() => {
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    const target = link && document.getElementById(link.getAttribute("href").slice(1));
    if (!target) return;
    event.preventDefault();
    target.scrollIntoView({ behavior: calm.matches ? "auto" : "smooth" });
    if (!target.hasAttribute("tabindex")) target.tabIndex = -1;
    target.focus({ preventScroll: true });
  });

  const copy = async (button) => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      // Where the clipboard is closed to the page, the text is selected for the reader to copy.
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };
  window.beginCopying = (root) => root.querySelectorAll("button.copy").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  });
  window.beginCopying(document);
})();
