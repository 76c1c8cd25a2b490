// The stream of events. `EventSource` cannot send a token, so it is read by hand.

import { request } from "./api.js";

/** How long to wait before the stream is opened again. */
const AGAIN_MS = 2_000;

/** Splits a stream of text into `[event, data]`; returns what takes the next piece of text. */
export function parser(tell) {
  let rest = "";
  return (text) => {
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const field = (name) => {
        const lines = block.split("\n").filter((line) => line.startsWith(`${name}: `));
        return lines.map((line) => line.slice(name.length + 2)).join("\n");
      };
      if (field("data")) tell(field("event"), JSON.parse(field("data")));
    }
  };
}

/** Reads events for as long as the page is open. `tell(event, data)`, `state("live" | "off")`. */
export async function listen(tell, state) {
  for (;;) {
    try {
      const response = await request("/api/events");
      if (!response.ok) throw new Error(await response.text());
      state("live");
      const take = parser(tell);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        take(value);
      }
    } catch {
      // Gone, or not there yet: it is tried again.
    }
    state("off");
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}
