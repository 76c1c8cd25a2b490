// The admin API: one place that knows the token, and how a refusal is put in words.

import { byId } from "./dom.js";

const NAME = "tollgate-admin-token";

let asked = null;

/** What the API says no with. */
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

/** Asks for the token, once for all who need it. */
function signIn() {
  asked ??= new Promise((resolve) => {
    const dialog = byId("sign-in");
    const input = byId("sign-in-token");
    byId("sign-in-error").textContent = sessionStorage.getItem(NAME) ? "That was not it." : "";
    input.value = "";
    dialog.oncancel = (event) => event.preventDefault();
    dialog.onclose = () => {
      sessionStorage.setItem(NAME, input.value.trim());
      asked = null;
      resolve();
    };
    dialog.showModal();
  });
  return asked;
}

/** A fetch with the token; asks for it where it is missing or wrong. */
export async function request(path, options = {}) {
  for (;;) {
    const sent = sessionStorage.getItem(NAME);
    const response = await fetch(path, { ...options, headers: headers(options.headers), cache: "no-store" });
    if (response.status !== 401) return response;
    // Somebody may have been asked while this was under way.
    if (sent === sessionStorage.getItem(NAME)) await signIn();
  }
}

async function json(response) {
  const text = await response.text();
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    // Not every refusal is a problem document; the text will do.
  }
  if (response.ok) return body;
  throw new Problem(response.status, body?.detail ?? text.trim() ?? response.statusText, body);
}

export const get = async (path) => json(await request(path));

export async function post(path, body) {
  const content = body === undefined ? {} : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  return json(await request(path, { method: "POST", ...content }));
}

/** Calls `work` now and again every `ms`, while the page is looked at. Returns what ends it. */
export function every(ms, work) {
  let timer = null;
  let ended = false;
  const turn = async () => {
    clearTimeout(timer);
    if (!document.hidden) await work();
    if (!ended) timer = setTimeout(turn, ms);
  };
  const seen = () => !document.hidden && !ended && turn();
  document.addEventListener("visibilitychange", seen);
  turn();
  return () => {
    ended = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
  };
}
