// The dashboard. Each section is a file of its own; this one starts them and hands out the ticks.

import { byId } from "./dom.js";
import { listen } from "./events.js";
import { Ticks } from "./series.js";
import * as overview from "./overview.js";
import * as clients from "./clients.js";
import * as refusals from "./refusals.js";
import * as client from "./client.js";
import * as explain from "./explain.js";
import * as health from "./health.js";
import * as policy from "./policy.js";
import * as reloads from "./reloads.js";
import * as visualizer from "./visualizer.js";

/** What each choice means, for those who do not see it. */
const THEMES = { auto: "colours as the system has them", light: "light colours", dark: "dark colours" };

const ticks = new Ticks();

function take(event, data) {
  if (event === "history") ticks.reset(data);
  else ticks.push(data);
  if (!ticks.last) return;
  overview.show(ticks);
  health.show(ticks);
  policy.update(ticks.last.generation);
}

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

theme();
for (const section of [overview, clients, refusals, client, explain, health, reloads, visualizer]) section.start();
listen(take, live);
