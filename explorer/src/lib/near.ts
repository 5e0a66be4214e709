/** Pictures near the screen are painted at once, others when the page rests: a frame of the film
 * costs what the reader sees. */

const REST = 150; // milliseconds
const far = new WeakSet<Element>();
const waiting = new WeakMap<Element, () => void>();
const observer = new IntersectionObserver(
  (changes) => {
    for (const { target, isIntersecting } of changes) {
      if (!isIntersecting) {
        far.add(target);
        continue;
      }
      far.delete(target);
      waiting.get(target)?.();
    }
  },
  { rootMargin: "300px" },
);

/** Follows an element: an attachment. */
export function watchNear(node: Element): () => void {
  observer.observe(node);
  return () => observer.unobserve(node);
}

/** Paints a watched element, now or when it comes near; returns what cancels it. */
export function paintNear(node: Element, paint: () => void): () => void {
  const run = (): void => {
    stop();
    paint();
  };
  const timer = far.has(node) ? window.setTimeout(run, REST) : 0;
  const stop = (): void => {
    clearTimeout(timer);
    waiting.delete(node);
  };
  if (timer) waiting.set(node, run);
  else paint();
  return stop;
}
