// Reads the limit of a response with ratelimit-header-parser: `node parser.mjs URL`. Prints it as JSON.

import { parseRateLimit } from "ratelimit-header-parser";

const response = await fetch(process.argv[2], { headers: { "x-client": "parser" } });
const limit = parseRateLimit(response) ?? {};
const reset = limit.reset ? limit.reset.getTime() / 1000 : null;
console.log(JSON.stringify({ limit: limit.limit, remaining: limit.remaining, reset }));
