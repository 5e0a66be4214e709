/** Movement in a vertical list by keyboard. */

/** The item that an arrow key, Home or End leads to from item `at`; null for other keys. */
export function itemByKey(event: KeyboardEvent, at: number, count: number): number | null {
  const to = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: count - 1 }[event.key];
  if (to === undefined) return null;
  event.preventDefault();
  return Math.max(0, Math.min(to, count - 1));
}
