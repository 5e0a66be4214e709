/** Movement in a vertical list by keyboard. */

/** Select and focus the item that an arrow key, Home or End leads to from item `at`. */
export function selectByKey(
  event: KeyboardEvent,
  at: number,
  items: ArrayLike<HTMLElement> | undefined,
  select: (to: number) => void,
): void {
  const last = (items?.length ?? 0) - 1;
  const to = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: last }[event.key];
  if (to === undefined || last < 0) return;
  event.preventDefault();
  const chosen = Math.max(0, Math.min(to, last));
  select(chosen);
  items![chosen]!.focus();
}
