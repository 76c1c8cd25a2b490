// Colours: the system's, or those that were chosen. Before the page is drawn, so that it does not
// flash; hence a script of its own and no module.
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
      // Private windows may keep nothing: it holds until the page is left.
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
