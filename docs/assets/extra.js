/* What the theme leaves unsaid for those who hear or type their way through a page. */
(function () {
  function name(root) {
    for (const dialog of root.querySelectorAll("[role=dialog]:not([aria-label])")) dialog.setAttribute("aria-label", "Search");
    // The buttons of a block of code are no landmark of the page.
    for (const nav of root.querySelectorAll("nav.md-code__nav:not([role])")) nav.setAttribute("role", "presentation");
    // A class may have the name of its chapter; their lists in the contents must be told apart.
    for (const nav of root.querySelectorAll(".md-nav nav.md-nav[aria-label]:not([data-named])")) {
      const above = nav.parentElement.closest("nav[aria-label]");
      nav.dataset.named = "";
      if (above) nav.setAttribute("aria-label", above.getAttribute("aria-label") + ": " + nav.getAttribute("aria-label"));
    }
    for (const part of root.querySelectorAll(".md-typeset__scrollwrap:not([tabindex]), figure.diagram:not([tabindex])")) {
      if (part.scrollWidth > part.clientWidth) part.setAttribute("tabindex", "0");
    }
  }
  function start() {
    name(document);
    new MutationObserver(function () { name(document); }).observe(document.body, { childList: true, subtree: true });
    addEventListener("resize", function () { name(document); });
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
