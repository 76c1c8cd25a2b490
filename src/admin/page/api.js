// Client of the admin API: the token and error responses.

import { byId } from "./dom.js";

const NAME = "tollgate-admin-token";

let signingIn = null;

/** An error response of the admin API. */
export class Problem extends Error {
  constructor(status, detail, body) {
    super(detail);
    this.status = status;
    this.body = body;
  }
}

function headers(more = {}) {
  const token = sessionStorage.getItem(NAME);
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

/** Shows the sign-in dialog, once for all pending requests. */
function signIn() {
  signingIn ??= new Promise((resolve) => {
    const dialog = byId("sign-in");
    const input = byId("sign-in-token");
    byId("sign-in-error").textContent = sessionStorage.getItem(NAME) ? "The token is wrong." : "";
    input.value = "";
    dialog.oncancel = (event) => event.preventDefault();
    dialog.onclose = () => {
      sessionStorage.setItem(NAME, input.value.trim());
      signingIn = null;
      resolve();
    };
    dialog.showModal();
  });
  return signingIn;
}

/** A fetch with the token; shows the sign-in dialog if the token is missing or wrong. */
export async function request(path, options = {}) {
  for (;;) {
    const sent = sessionStorage.getItem(NAME);
    const response = await fetch(path, { ...options, headers: headers(options.headers), cache: "no-store" }).catch(() => {
      // The browser's own words ("Failed to fetch", "Load failed") do not say what failed.
      throw new Error("The gateway does not answer.");
    });
    if (response.status !== 401) return response;
    // The token may have been entered during this request.
    if (sent === sessionStorage.getItem(NAME)) await signIn();
  }
}

async function json(response) {
  const text = await response.text();
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    // Not every error is a problem document; use the text.
  }
  if (response.ok) return body;
  throw new Problem(response.status, body?.detail ?? text.trim() ?? response.statusText, body);
}

export const get = async (path) => json(await request(path));

export async function post(path, body) {
  const content = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  return json(await request(path, { method: "POST", ...content }));
}

export const remove = async (path) => json(await request(path, { method: "DELETE" }));

/** Calls `work` now and every `ms` (a number, or a function) while the page is visible. Returns a function that stops it. */
export function every(ms, work) {
  let timer = null;
  let ended = false;
  const run = async () => {
    clearTimeout(timer);
    if (!document.hidden) await work();
    if (!ended) timer = setTimeout(run, typeof ms === "function" ? ms() : ms);
  };
  const resume = () => !document.hidden && !ended && run();
  document.addEventListener("visibilitychange", resume);
  run();
  return () => {
    ended = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", resume);
  };
}
