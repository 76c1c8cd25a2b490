// Tokens of oidc-provider, a certified OpenID provider: found by discovery, verified by its keys, and asked about.

import assert from "node:assert/strict";
import test from "node:test";

import { exportJWK, generateKeyPair } from "jose";
import Provider from "oidc-provider";

import { eventually, gateway, serve } from "./support.mjs";

const AUDIENCE = "https://api.test";

/** A private key as the provider wants it. */
async function key(alg, kid) {
  const { privateKey } = await generateKeyPair(alg, { extractable: true });
  return { ...(await exportJWK(privateKey)), alg, kid, use: "sig" };
}

/** Starts a provider, or starts it anew on the same port with other keys. */
async function start(keys, port = 0) {
  // The issuer has the port, which is known when it listens.
  let handle;
  const server = await serve((request, response) => handle(request, response), port);
  const provider = new Provider(server.url, {
    clients: [
      { client_id: "machine", client_secret: "secret-of-machine", grant_types: ["client_credentials"], redirect_uris: [], response_types: [] },
      { client_id: "gateway", client_secret: "secret-of-gateway", grant_types: ["client_credentials"], redirect_uris: [], response_types: [] },
    ],
    // The provider wants one of RS256, for ID tokens, which these clients do not get.
    jwks: { keys: [...keys, await key("RS256", "of-id-tokens")] },
    scopes: ["read", "write"],
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      introspection: { enabled: true, allowedPolicy: () => true },
      revocation: { enabled: true, allowedPolicy: () => true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, resource) => ({
          scope: "read write",
          audience: resource,
          accessTokenFormat: resource.endsWith("opaque") ? "opaque" : "jwt",
          accessTokenTTL: 600,
          jwt: { sign: { alg: keys[0].alg } },
        }),
      },
    },
  });
  provider.on("server_error", (_, error) => console.error(error));
  handle = provider.callback();
  const post = (path, client, form) => fetch(`${server.url}${path}`, {
    method: "POST",
    headers: { authorization: `Basic ${Buffer.from(`${client}:secret-of-${client}`).toString("base64")}` },
    body: new URLSearchParams(form),
  });
  const token = async (resource, scope = "read") => {
    const response = await post("/token", "machine", { grant_type: "client_credentials", resource, scope });
    const answer = await response.json();
    assert.equal(response.status, 200, JSON.stringify(answer));
    return answer.access_token;
  };
  const revoke = (text) => post("/token/revocation", "machine", { token: text });
  return { ...server, token, revoke };
}

const jwt = (url) => `[clients.jwt]\nissuer = "${url}"\naudience = "${AUDIENCE}"\nid_claim = "client_id"\ndefault_plan = "free"\n`;

for (const alg of ["RS256", "PS256", "ES256", "ES384", "EdDSA"]) {
  test(`tokens with ${alg} are verified by keys that discovery finds`, async () => {
    const provider = await start([await key(alg, "one")]);
    const own = await gateway(jwt(provider.url));
    try {
      const token = await provider.token(AUDIENCE);
      assert.deepEqual(await own.send(token), { status: 200, client: `machine ${provider.url}`, detail: undefined });
      const other = await own.send(await provider.token("https://other.test"));
      assert.equal(other.status, 401);
      assert.match(other.detail, /is for another audience/);
      const [head, body, signature] = token.split(".");
      const claims = JSON.parse(Buffer.from(body, "base64url"));
      const forged = Buffer.from(JSON.stringify({ ...claims, client_id: "admin" })).toString("base64url");
      assert.equal((await own.send(`${head}.${forged}.${signature}`)).status, 401);
      assert.ok(!own.log().includes(signature));
    } finally {
      await own.stop();
      await provider.close();
    }
  });
}

test("keys that the provider replaces are fetched when a token has one", async () => {
  const [first, second] = [await key("ES256", "one"), await key("ES256", "two")];
  let provider = await start([first]);
  const own = await gateway(jwt(provider.url));
  try {
    const old = await provider.token(AUDIENCE);
    assert.equal((await own.send(old)).status, 200);
    const { port } = provider;
    await provider.close();
    assert.equal((await own.send(old)).status, 200, "the provider is away");
    provider = await start([second, first], port);
    const token = await provider.token(AUDIENCE);
    await eventually("the new key", async () => (await own.send(token)).status === 200);
    assert.equal((await own.send(old)).status, 200, "the provider has both keys");
  } finally {
    await own.stop();
    await provider.close();
  }
});

test("opaque tokens are asked about until they are revoked", async () => {
  const provider = await start([await key("RS256", "one")]);
  const table = `[clients.introspection]\nurl = "${provider.url}/token/introspection"\nclient_id = "gateway"
client_secret = "secret-of-gateway"\nid_claim = "client_id"\nscopes = ["read"]\naudience = "${AUDIENCE}/opaque"\ndefault_plan = "free"\ncache = "1s"\n`;
  const own = await gateway(table);
  try {
    const token = await provider.token(`${AUDIENCE}/opaque`);
    assert.ok(!token.includes("."), token);
    assert.deepEqual(await own.send(token), { status: 200, client: `machine ${provider.url}`, detail: undefined });
    const writer = await own.send(await provider.token(`${AUDIENCE}/opaque`, "write"));
    assert.equal(writer.status, 401);
    assert.match(writer.detail, /lacks a scope/);
    assert.equal((await own.send("never-issued")).status, 401);
    assert.equal((await provider.revoke(token)).status, 200);
    await eventually("401 of a revoked token", async () => (await own.send(token)).status === 401);
  } finally {
    await own.stop();
    await provider.close();
  }
});
