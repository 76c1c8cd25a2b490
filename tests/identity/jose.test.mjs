// Tokens of jose: all algorithms, with keys named by their thumbprints (RFC 7638), and forgeries.

import assert from "node:assert/strict";
import { createHash, createHmac, createPrivateKey, generateKeyPairSync, sign } from "node:crypto";
import test from "node:test";

import { CompactEncrypt, CompactSign, SignJWT, UnsecuredJWT, calculateJwkThumbprint, exportJWK, exportSPKI, generateKeyPair, importSPKI } from "jose";

import { certificate, gateway, serve } from "./support.mjs";

const ISSUER = "https://id.test";
const ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];
const now = () => Math.floor(Date.now() / 1000);
const encode = (value) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");

/** A key pair for each algorithm, its name the thumbprint of the public key. */
async function keyPairs() {
  const pairs = await Promise.all(ALGORITHMS.map(async (alg) => {
    const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true });
    const jwk = await exportJWK(publicKey);
    return [alg, { publicKey, privateKey, jwk, kid: await calculateJwkThumbprint(jwk) }];
  }));
  return new Map(pairs);
}

/** The thumbprint of a key by RFC 7638 alone, beside that of jose. */
function thumbprint(jwk) {
  const members = { RSA: ["e", "kty", "n"], EC: ["crv", "kty", "x", "y"], OKP: ["crv", "kty", "x"] }[jwk.kty];
  const text = `{${members.map((name) => `"${name}":"${jwk[name]}"`).join(",")}}`;
  return createHash("sha256").update(text).digest("base64url");
}

const claims = (more = {}) => ({ iss: ISSUER, aud: "api", sub: "ann", iat: now(), exp: now() + 600, ...more });

test("tokens of jose have the verdict that the standards demand", async (t) => {
  const pairs = await keyPairs();
  const keys = [...pairs].map(([alg, { jwk, kid }]) => ({ ...jwk, kid, alg, use: "sig" }));
  const server = await serve((_, response) => response.setHeader("content-type", "application/json").end(JSON.stringify({ keys })));
  const own = await gateway(`[clients.jwt]\nissuer = "${ISSUER}"\naudience = "api"\njwks = "${server.url}/jwks.json"\ndefault_plan = "free"\n`);
  const { privateKey, publicKey, kid } = pairs.get("RS256");
  const signed = (payload, header = {}, key = privateKey) => new SignJWT(payload).setProtectedHeader({ alg: "RS256", kid, typ: "JWT", ...header }).sign(key);
  const refused = async (what, token) => {
    const { status, client } = await own.send(token);
    assert.deepEqual({ status, client }, { status: 401, client: undefined }, what);
  };
  try {
    for (const [alg, pair] of pairs) {
      await t.test(`${alg} with the thumbprint of its key`, async () => {
        assert.equal(pair.kid, thumbprint(pair.jwk), "RFC 7638");
        const token = await signed(claims(), { alg, kid: pair.kid }, pair.privateKey);
        assert.equal((await own.send(token)).status, 200);
        const without = await new SignJWT(claims()).setProtectedHeader({ alg }).sign(pair.privateKey);
        assert.equal((await own.send(without)).status, 200, "without kid and typ");
      });
    }
    await t.test("forgeries", async () => {
      const pem = await exportSPKI(publicKey);
      const hmac = (secret) => {
        const text = `${encode({ alg: "HS256", kid, typ: "JWT" })}.${encode(claims())}`;
        return `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`;
      };
      const stranger = await generateKeyPair("RS256", { extractable: true });
      const jwk = await exportJWK(stranger.publicKey);
      await refused("none", new UnsecuredJWT(claims()).encode());
      await refused("none with a signature", `${encode({ alg: "none", kid })}.${encode(claims())}.${encode("x")}`);
      await refused("HS256 with the PEM of the public key", hmac(pem));
      await refused("HS256 with the JWK", hmac(JSON.stringify(pairs.get("RS256").jwk)));
      await refused("HS256 with no secret", hmac(""));
      await refused("another key", await signed(claims(), {}, stranger.privateKey));
      await refused("jwk in the header", await signed(claims(), { jwk, kid: "new" }, stranger.privateKey));
      await refused("jku in the header", await signed(claims(), { jku: `${server.url}/evil.json`, kid: "new" }, stranger.privateKey));
      await refused("kid as a path", await signed(claims(), { kid: "../../../../dev/null" }, stranger.privateKey));
      await refused("crit", await new SignJWT(claims()).setProtectedHeader({ alg: "RS256", kid, crit: ["x"], x: 1 }).sign(privateKey, { crit: { x: true } }));
      const other = `${encode({ alg: "RS512", kid, typ: "JWT" })}.${encode(claims())}`;
      const own512 = sign("sha512", other, createPrivateKey({ key: await exportJWK(privateKey), format: "jwk" }));
      await refused("another algorithm than that of the key", `${other}.${own512.toString("base64url")}`);
      await refused("ES256 with a key of ES384", await new SignJWT(claims()).setProtectedHeader({ alg: "ES256", kid: pairs.get("ES384").kid }).sign(pairs.get("ES256").privateKey));
      const der = generateKeyPairSync("ec", { namedCurve: "P-256" });
      const text = `${encode({ alg: "ES256", kid: pairs.get("ES256").kid })}.${encode(claims())}`;
      await refused("ECDSA of zeros", `${text}.${Buffer.alloc(64).toString("base64url")}`);
      await refused("ECDSA in DER", `${text}.${sign("sha256", text, der.privateKey).toString("base64url")}`);
    });
    await t.test("claims and forms", async () => {
      await refused("expired", await signed(claims({ exp: now() - 60 })));
      await refused("future", await signed(claims({ nbf: now() + 600 })));
      await refused("issued in the future", await signed(claims({ iat: now() + 600 })));
      await refused("another audience", await signed(claims({ aud: ["other", "api2"] })));
      await refused("no audience", await signed(claims({ aud: undefined })));
      await refused("another issuer", await signed(claims({ iss: `${ISSUER}/` })));
      await refused("no expiry", await signed(claims({ exp: undefined })));
      await refused("an ID token of another type", await signed(claims(), { typ: "logout+jwt" }));
      await refused("huge", await signed(claims({ filler: "x".repeat(13_000) })));
      const nested = await new CompactSign(Buffer.from(await signed(claims()))).setProtectedHeader({ alg: "RS256", kid, cty: "JWT" }).sign(privateKey);
      await refused("nested", nested);
      const encrypted = await new CompactEncrypt(Buffer.from(await signed(claims()))).setProtectedHeader({ alg: "RSA-OAEP", enc: "A128GCM" }).encrypt(await importSPKI(await exportSPKI(publicKey), "RSA-OAEP"));
      await refused("encrypted", encrypted);
      const twice = `${encode({ alg: "RS256", kid })}.${encode(`{"iss":"${ISSUER}","aud":"api","sub":"ann","sub":"admin","exp":${now() + 600}}`)}`;
      const own256 = createPrivateKey({ key: await exportJWK(privateKey), format: "jwk" });
      await refused("a claim twice", `${twice}.${sign("sha256", twice, own256).toString("base64url")}`);
      assert.equal((await own.send(await signed(claims({ aud: ["other", "api"], exp: now() + 5.5 })))).status, 200, "a list, and a fraction");
      assert.equal((await own.send(await signed(claims({ exp: now() - 10 })))).status, 200, "within the skew");
    });
    assert.ok(!own.log().includes("eyJ"), "no token in the log");
  } finally {
    await own.stop();
    await server.close();
  }
});

test("keys are fetched over TLS from a server that an authority of `ca` has certified", async () => {
  const { privateKey, jwk, kid } = (await keyPairs()).get("ES256");
  const own = await certificate();
  const keys = JSON.stringify({ keys: [{ ...jwk, kid }] });
  const server = await serve((_, response) => response.setHeader("content-type", "application/json").end(keys), 0, own);
  const table = `[clients.jwt]\nissuer = "${ISSUER}"\naudience = "api"\njwks = "${server.url}/jwks.json"\ndefault_plan = "free"\n`;
  const token = await new SignJWT(claims()).setProtectedHeader({ alg: "ES256", kid }).sign(privateKey);
  const statuses = [];
  try {
    for (const ca of [`ca = "${own.ca}"\n`, ""]) {
      const one = await gateway(table + ca);
      statuses.push((await one.send(token)).status);
      await one.stop();
    }
  } finally {
    await server.close();
    await own.remove();
  }
  assert.deepEqual(statuses, [200, 503], "with the authority, and without");
});
