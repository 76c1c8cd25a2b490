// Confirmation dialogs.

import { byId } from "./dom.js";

/**
 * Shows a confirmation dialog. Resolves to `null` if cancelled; otherwise to `true`, or to the entered
 * number if `number: { label, value, max, min = 1 }` is given.
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
    input.min = number.min ?? 1;
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
