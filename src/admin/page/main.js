// The dashboard. Each section is one file; this one starts them and passes the samples.

import { byId, h } from "./dom.js";
import { listen } from "./events.js";
import * as zones from "./zone.js";
import * as view from "./view.js";
import * as range from "./range.js";
import * as overview from "./overview.js";
import * as traffic from "./traffic.js";
import * as clients from "./clients.js";
import * as bans from "./bans.js";
import * as keys from "./keys.js";
import * as refusals from "./refusals.js";
import * as client from "./client.js";
import * as explain from "./explain.js";
import * as health from "./health.js";
import * as policy from "./policy.js";
import * as reloads from "./reloads.js";
import * as changes from "./changes.js";
import * as usage from "./usage.js";
import * as visualizer from "./visualizer.js";

/** Accessible names of the colour schemes. */
const THEMES = { auto: "colours of the system", light: "light colours", dark: "dark colours" };

/** In a browser without the event `scrollend`, scrolling has ended when the page has not moved for this long. */
const SETTLED_MS = 200;

/** How long a button says that the link was copied. */
const COPIED_MS = 2_000;

function live(state) {
  const element = byId("live");
  element.dataset.state = state;
  element.textContent = state === "live" ? "Live" : "Reconnecting";
}

function theme() {
  const button = byId("theme");
  const name = (value) => {
    button.textContent = value[0].toUpperCase() + value.slice(1);
    button.setAttribute("aria-label", `${button.textContent}: ${THEMES[value]}`);
  };
  name(window.tollgateTheme.read());
  button.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(window.tollgateTheme.read()) + 1) % names.length];
    window.tollgateTheme.set(next);
    name(next);
  });
}

/** The choice of the time zone, and its names. */
function zone() {
  const select = byId("zone");
  const name = () => {
    for (const option of select.options) option.textContent = zones.label(option.value);
  };
  window.addEventListener("gatewayzone", ({ detail: known }) => {
    if (!known) return;
    if (!select.querySelector('[value="gateway"]')) select.append(h("option", { value: "gateway" }));
    select.value = view.current().zone;
    name();
    if (view.current().zone === "gateway") window.dispatchEvent(new Event("zonechange"));
  });
  select.addEventListener("change", () => view.change({ zone: select.value }));
  view.listen((now, before) => {
    zones.choose(now.zone);
    select.value = now.zone;
    if (now.zone !== before.zone) window.dispatchEvent(new Event("zonechange"));
  });
  name();
}

/** Copies a link to what is shown. Without access to the clipboard, it shows the link to copy. */
function share() {
  const button = byId("copy-link");
  button.addEventListener("click", async () => {
    const link = new URL(view.format(view.frozen(view.current(), Date.now())), window.location.href).href;
    try {
      await navigator.clipboard.writeText(link);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy link"), COPIED_MS);
    } catch {
      byId("link-text").value = link;
      byId("link").showModal();
      byId("link-text").select();
    }
  });
}

/** Keeps the section in the address: by a click on its link, or by scrolling there. */
function sections() {
  const links = [...document.querySelectorAll("nav a")];
  for (const section of view.SECTIONS) byId(`${section}-title`).tabIndex = -1;
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (!link) return;
    event.preventDefault();
    view.go({ section: link.hash.slice(1) });
  });
  let timer = null;
  const settled = () => {
    const top = (section) => byId(section).getBoundingClientRect().top;
    const height = window.innerHeight;
    const { section } = view.current();
    if (top(section) >= -1 && top(section) < height) return;
    // A section without content has no place.
    const passed = view.SECTIONS.filter((name) => !byId(name).hidden && top(name) < height * 0.4);
    view.change({ section: passed.at(-1) ?? view.SECTIONS[0] }, { replace: true });
  };
  if ("onscrollend" in window) document.addEventListener("scrollend", settled);
  else {
    window.addEventListener("scroll", () => {
      clearTimeout(timer);
      timer = setTimeout(settled, SETTLED_MS);
    }, { passive: true });
  }
  view.listen(({ section }) => {
    for (const link of links) {
      if (link.hash === `#${section}`) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  });
}

theme();
zone();
share();
sections();
range.start([overview.show, traffic.show, health.show, ({ last }) => policy.update(last.generation)]);
for (const section of [overview, traffic, clients, bans, usage, keys, refusals, client, explain, health, reloads, changes, visualizer]) section.start();
view.start();
listen(range.take, live);
