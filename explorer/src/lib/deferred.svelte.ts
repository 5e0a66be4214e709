/** Values that follow the state later: after the drawer is painted, or when they come near. */

import { untrack } from "svelte";
import { paintNear } from "./near";
import { app } from "./state.svelte";

const LONGEST = 200; // milliseconds that the page waits for the arithmetic

/** Waits until the requested explanation is on the screen. */
export async function drawerPainted(): Promise<void> {
  const late = new Promise((resolve) => setTimeout(resolve, LONGEST));
  await Promise.race([app.explaining, late]);
  await new Promise(requestAnimationFrame);
  await new Promise((resolve) => setTimeout(resolve)); // after the frame is painted
}

/** Runs something later; returns what cancels it. */
type Schedule = (run: () => void) => () => void;

/** A click shows its arithmetic first. */
export const afterDrawer: Schedule = (run) => {
  let cancelled = false;
  void drawerPainted().then(() => cancelled || run());
  return () => void (cancelled = true);
};

/** An element near the screen follows at once, others when the page rests. It must be watched. */
export const whenNear =
  (node: () => Element | undefined): Schedule =>
  (run) => {
    const found = untrack(node);
    if (found) return paintNear(found, run);
    run();
    return () => {};
  };

/**
 * The value of `read`, when `schedule` runs. It follows at once when `stamp` changes: a value of
 * another text or attention would be wrong. Call it while a component is set up.
 */
export function deferred<T>(
  read: () => T,
  stamp: () => string,
  schedule: Schedule,
): { readonly value: T } {
  let kept = $state.raw<{ value: T; stamp: string } | null>(null);
  const value = $derived(kept?.stamp === stamp() ? kept.value : read());
  $effect(() => {
    const now = { value: read(), stamp: stamp() };
    if (untrack(() => kept?.stamp) === now.stamp) return schedule(() => void (kept = now));
    kept = now;
  });
  return {
    get value() {
      return value;
    },
  };
}
