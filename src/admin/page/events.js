// Reads the event stream with fetch, because `EventSource` cannot send a token.

import { request } from "./api.js";

/** Delay before the stream is opened again. */
const RECONNECT_MS = 2_000;

/** Parses a stream of text and calls `emit(event, data)`; returns a function for the next piece of text. */
export function parser(emit) {
  let rest = "";
  return (text) => {
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const field = (name) => {
        const lines = block.split("\n").filter((line) => line.startsWith(`${name}: `));
        return lines.map((line) => line.slice(name.length + 2)).join("\n");
      };
      if (field("data")) emit(field("event"), JSON.parse(field("data")));
    }
  };
}

/** Reads events while the page is open. Calls `emit(event, data)` and `state("live" | "off")`. */
export async function listen(emit, state) {
  for (;;) {
    try {
      const response = await request("/api/events");
      if (!response.ok) throw new Error(await response.text());
      state("live");
      const take = parser(emit);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        take(value);
      }
    } catch {
      // Disconnected, or not reachable yet: retried below.
    }
    state("off");
    await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
  }
}
