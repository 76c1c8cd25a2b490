// Sends requests with client libraries of JavaScript, each with its retries as its documentation shows them:
// `node clients.mjs URL CALLS`. Prints a JSON object: the library, and the statuses that its caller saw.

import axios from "axios";
import axiosRetry from "axios-retry";
import got from "got";
import ky from "ky";
import { Agent, RetryAgent, request } from "undici";

const [, , url, calls] = process.argv;

const headers = (name) => ({ "x-client": name });

const retrying = axios.create();
axiosRetry(retrying, { retries: 3 });
const agent = new RetryAgent(new Agent());

// The default is what a caller gets who sets nothing but the number of retries.
const clients = {
    fetch: async (name) => (await fetch(url, { headers: headers(name) })).status,
    got: async (name) => (await got(url, { headers: headers(name) })).statusCode,
    ky: async (name) => (await ky.get(url, { headers: headers(name) })).status,
    axios: async (name) => (await axios.get(url, { headers: headers(name) })).status,
    "axios-retry": async (name) => (await retrying.get(url, { headers: headers(name) })).status,
    "undici RetryAgent": async (name) =>
        (await request(url, { headers: headers(name), dispatcher: agent })).statusCode,
};

async function statuses(name, send) {
    const seen = [];
    for (let call = 0; call < Number(calls); call += 1) {
        try {
            seen.push(await send(name));
        } catch (error) {
            seen.push(error.response?.statusCode ?? error.response?.status ?? error.statusCode ?? String(error));
        }
    }
    return [name, seen];
}

const found = await Promise.all(Object.entries(clients).map(([name, send]) => statuses(name, send)));
await agent.close();
console.log(JSON.stringify(Object.fromEntries(found)));
