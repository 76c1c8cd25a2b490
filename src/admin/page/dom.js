// Creates elements without HTML in strings, so that text of clients cannot become markup.

/** An element. `on…` are listeners, `data` is a dataset, other properties are attributes. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const byId = (id) => document.getElementById(id);

/**
 * Replaces the children of an element with as few changes as possible, so that focus, scroll position
 * and clicks survive. Nodes are reused for other rows, so they must have no listeners of their own: the
 * containing element listens.
 */
export function fill(element, ...children) {
  morph(element, h("div", {}, ...children));
}

function morph(element, wanted) {
  const next = [...wanted.childNodes];
  next.forEach((node, index) => {
    const old = element.childNodes[index];
    if (!old) element.append(node);
    else if (old.nodeName !== node.nodeName) old.replaceWith(node);
    else if (node.nodeType === Node.TEXT_NODE) {
      if (old.data !== node.data) old.data = node.data;
    } else {
      attributes(old, node);
      morph(old, node);
    }
  });
  while (element.childNodes.length > next.length) element.lastChild.remove();
}

function attributes(old, node) {
  for (const { name } of [...old.attributes]) if (!node.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of node.attributes) {
    if (old.getAttribute(name) === value) continue;
    // The content security policy forbids the style attribute.
    if (name === "style") old.style.cssText = node.style.cssText;
    else old.setAttribute(name, value);
  }
}

/** Names longer than this may break anywhere; shorter ones only at a hyphen. */
const UNBROKEN = 12;

/** A name that breaks over lines where it would not fit, as text with `<wbr>`. */
export function named(text) {
  if (text.length <= UNBROKEN) return [text];
  const parts = text.match(/[^-_.:/]{1,8}[-_.:/]?|[-_.:/]/g) ?? [];
  return parts.flatMap((part, index) => (index === 0 ? [part] : [h("wbr"), part]));
}

/** A name of the file. */
export const code = (text) => h("code", {}, named(text));

/**
 * A table. `columns`: `{ title, cell(row), kind?, sort? }`; `kind` is "number" or "minor", `sort` is
 * `aria-sort`. A row is followed by what `detail(row)` returns, if that is not false.
 */
export function table(caption, columns, rows, detail = () => false) {
  const head = columns.map(({ title, kind, sort }) => h("th", { scope: "col", class: kind, "aria-sort": sort }, title));
  const body = rows.flatMap((row) => {
    const cells = columns.map(({ cell, kind }, index) => {
      const content = cell(row);
      return index === 0 ? h("th", { scope: "row", class: kind }, content) : h("td", { class: kind }, content);
    });
    const more = detail(row);
    return [h("tr", {}, cells), more && h("tr", { class: "detail" }, h("td", { colspan: columns.length }, more))];
  });
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${caption}` },
    h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export const empty = (text) => h("p", { class: "empty" }, text);

export const badge = (text, kind) => h("span", { class: "badge", data: { kind } }, text);
