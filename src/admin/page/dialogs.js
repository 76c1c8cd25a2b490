// Questions before anything is changed.

import { byId } from "./dom.js";

/**
 * Asks. Resolves to `null` where it was declined; else to `true`, or to the number that was asked
 * for with `number: { label, value, max }`.
 */
export function confirm({ title, text, yes, number }) {
  const dialog = byId("confirm");
  const input = byId("confirm-input");
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  byId("confirm-yes").textContent = yes;
  byId("confirm-field").hidden = !number;
  input.disabled = !number;
  if (number) {
    byId("confirm-label").textContent = number.label;
    input.max = number.max;
    input.value = number.value;
  }
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      if (dialog.returnValue !== "yes") resolve(null);
      else resolve(number ? Number(input.value) : true);
    };
  });
}
