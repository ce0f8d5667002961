// Before the first paint, so that a dark page does not flash white. The choice is kept for this site only.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("trilane-theme");
  } catch {
    // Storage may be closed to the page; then the system decides.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
