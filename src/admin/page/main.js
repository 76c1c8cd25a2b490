// The dashboard. Each section is one file; this one starts them and passes the samples.

import { byId } from "./dom.js";
import { listen } from "./events.js";
import { Samples } from "./series.js";
import * as overview from "./overview.js";
import * as clients from "./clients.js";
import * as refusals from "./refusals.js";
import * as client from "./client.js";
import * as explain from "./explain.js";
import * as health from "./health.js";
import * as policy from "./policy.js";
import * as reloads from "./reloads.js";
import * as visualizer from "./visualizer.js";

/** Accessible names of the colour schemes. */
const THEMES = { auto: "colours of the system", light: "light colours", dark: "dark colours" };

const samples = new Samples();

function take(event, data) {
  if (event === "history") samples.reset(data);
  else samples.push(data);
  if (!samples.last) return;
  overview.show(samples);
  health.show(samples);
  policy.update(samples.last.generation);
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
