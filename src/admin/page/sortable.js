// Tables that the reader sorts by a column.

import { h, table } from "./dom.js";

/** Rows in the order of a column; equal ones by name, so that their order does not change. */
export function sorted(rows, { value }, direction) {
  const sign = direction === "ascending" ? 1 : -1;
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  return [...rows].sort((a, b) => sign * compare(value(a), value(b)) || compare(a.name, b.name));
}

/** The order of one table. Columns are those of `table`, with `id`, `value(row)` and optionally `first`. */
export class SortedTable {
  #caption;
  #by;
  #direction = "descending";

  constructor(caption, by) {
    this.#caption = caption;
    this.#by = by;
  }

  /** Sorts by the column `id`; again: in the other direction. */
  sort(id, columns) {
    if (this.#by === id) this.#direction = this.#direction === "ascending" ? "descending" : "ascending";
    else this.#direction = columns.find((column) => column.id === id)?.first ?? "descending";
    this.#by = id;
  }

  /** The table. The containing element listens for clicks on buttons with `data-sort`. */
  render(columns, rows) {
    const by = columns.find(({ id }) => id === this.#by) ?? columns[0];
    const marked = columns.map((column) => ({
      ...column,
      sort: column === by ? this.#direction : "none",
      title: h("button", { type: "button", class: "sort", data: { sort: column.id } }, column.title),
    }));
    return table(this.#caption, marked, sorted(rows, by, this.#direction));
  }
}
