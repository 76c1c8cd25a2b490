// The colour scheme. Runs before the page is drawn, so that the page does not flash;
// therefore a classic script, not a module.
(() => {
  const NAME = "tollgate-theme";
  const read = () => {
    try {
      return localStorage.getItem(NAME) ?? "auto";
    } catch {
      return "auto";
    }
  };
  const apply = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  const set = (theme) => {
    try {
      localStorage.setItem(NAME, theme);
    } catch {
      // Storage may be disabled; the choice then lasts until the page is closed.
    }
    apply(theme);
    window.dispatchEvent(new Event("themechange"));
  };
  apply(read());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    window.dispatchEvent(new Event("themechange"));
  });
  window.tollgateTheme = { read, set };
})();
