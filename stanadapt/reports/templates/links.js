"use strict";
// Follows links within the page, and makes buttons that copy code. In a notebook's frame the browser would read
// "#chains" as an address in the notebook's page.
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
      // If the page may not use the clipboard, it selects the text so that the reader can copy it.
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
