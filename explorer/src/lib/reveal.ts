/** Scrolls frames, but not the page, to show a part of them. */

/** Top, height, left and width of a part, in the coordinates of its frame. */
type Part = [top: number, height: number, left?: number, width?: number];

const waiting = new Map<HTMLElement, () => Part | null>();

/** Shows a part of a frame in the next animation frame: a selection then lays out the page once. */
export function reveal(frame: HTMLElement, part: () => Part | null): void {
  if (!waiting.size) requestAnimationFrame(revealAll);
  waiting.set(frame, part);
}

/** Reads all places before it scrolls any frame. */
function revealAll(): void {
  const scrolls: [HTMLElement, number | null, number | null][] = [];
  for (const [frame, find] of waiting) {
    const part = frame.isConnected ? find() : null;
    if (!part) continue;
    const [top, height, left = 0, width = 0] = part;
    const { scrollTop, scrollLeft, clientHeight, clientWidth } = frame;
    scrolls.push([
      frame,
      offsetFor(top, height, scrollTop, clientHeight),
      offsetFor(left, width, scrollLeft, clientWidth),
    ]);
  }
  waiting.clear();
  for (const [frame, top, left] of scrolls) {
    if (top !== null) frame.scrollTop = top;
    if (left !== null) frame.scrollLeft = left;
  }
}

/** The scroll offset that centres a part, or null if all of it is in view. */
const offsetFor = (start: number, size: number, scrolled: number, shown: number): number | null =>
  start < scrolled || start + size > scrolled + shown ? start - (shown - size) / 2 : null;
