#!/usr/bin/env -S node --experimental-vm-modules --no-warnings
// Checks the scripts of the dashboard without a browser: each parses, and each name that a module imports is
// exported by the other. A browser runs nothing of the page if either is wrong.
//
// `scripts/check-page.mjs [FOLDER]`: FOLDER is src/admin/page if it is left out.

import { readFileSync, readdirSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { Script, SourceTextModule } from "node:vm";

const FOLDER = resolve(process.argv[2] ?? fileURLToPath(new URL("../src/admin/page/", import.meta.url)));
const SCRIPT = /<script\s+src="\/page\/([^"]+)"([^>]*)>/g;

const mistakes = [];
const modules = new Map();

const note = (file, error) => mistakes.push(`${relative(FOLDER, file)}: ${error.stack?.split("\n    at ")[0] ?? error}`);

/** The module of a file, parsed once; `undefined` if it does not parse. */
function parsed(file) {
  if (!modules.has(file)) {
    try {
      modules.set(file, new SourceTextModule(readFileSync(file, "utf8"), { identifier: file }));
    } catch (error) {
      modules.set(file, undefined);
      note(file, error);
    }
  }
  return modules.get(file);
}

function imported(specifier, { identifier }) {
  const module = parsed(resolve(dirname(identifier), specifier));
  if (!module) throw new Error(`imports ${specifier}, which does not parse`);
  return module;
}

/** The file whose import the error of a link is about: the error names only what is imported. */
function importer({ message }) {
  const [, from, name] = /requested module '(.+)' does not provide an export named '(.+)'/.exec(message) ?? [];
  const statement = name && new RegExp(`import\\s*\\{[^}]*\\b${name}\\b[^}]*\\}\\s*from\\s*["']${from}["']`);
  return statement && [...modules.keys()].find((file) => statement.test(readFileSync(file, "utf8")));
}

const html = readFileSync(join(FOLDER, "index.html"), "utf8");
const classic = new Set();
const entries = [];
for (const [, name, attributes] of html.matchAll(SCRIPT)) {
  if (attributes.includes('type="module"')) entries.push(join(FOLDER, name));
  else classic.add(join(FOLDER, name));
}
if (entries.length === 0) mistakes.push("index.html: no script of the type `module`");

for (const file of classic) {
  try {
    // The minified chart library lies in vendor/.
    const source = readFileSync(file.endsWith("uplot.min.js") ? join(FOLDER, "vendor", "uplot.min.js") : file, "utf8");
    new Script(source, { filename: file });
  } catch (error) {
    note(file, error);
  }
}

for (const name of readdirSync(FOLDER)) {
  const file = join(FOLDER, name);
  if (name.endsWith(".js") && !classic.has(file)) parsed(file);
}

if (mistakes.length === 0) {
  for (const entry of entries) {
    try {
      await modules.get(entry).link(imported);
    } catch (error) {
      note(importer(error) ?? entry, error);
    }
  }
  for (const [file, module] of mistakes.length === 0 ? modules : []) {
    if (module?.status === "unlinked") mistakes.push(`${relative(FOLDER, file)}: no module of the page imports it`);
  }
}

if (mistakes.length) {
  console.error(mistakes.join("\n"));
  process.exit(1);
}
console.log(`${modules.size} modules and ${classic.size} scripts of the dashboard parse, and their imports exist`);
