/** The order of computation, shown block by block after Run; not with reduced motion. */

const TOTAL = 2400; // milliseconds of the whole order
const [SHORTEST, LONGEST] = [24, 160]; // of one block

export class Computation {
  /** the block that is highlighted; −1 when nothing plays */
  at = $state(-1);
  private timer = 0;

  /** Highlights `count` blocks one after another. */
  play(count: number): void {
    this.stop();
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const pause = Math.max(SHORTEST, Math.min(LONGEST, TOTAL / Math.max(1, count)));
    const next = (): void => {
      if (this.at + 1 >= count) return this.stop();
      this.at++;
      this.timer = window.setTimeout(next, pause);
    };
    next();
  }
  stop(): void {
    clearTimeout(this.timer);
    this.at = -1;
  }
}
