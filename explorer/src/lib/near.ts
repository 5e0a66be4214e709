/** Pictures near the screen are painted at once, others when the page rests: a frame of the film
 * costs what the reader sees. A large picture is not painted before it comes near. */

const REST = 150; // milliseconds
const seen = new WeakMap<Element, boolean>(); // whether an element is near, once it is known
const waiting = new WeakMap<Element, () => void>();
const observer = new IntersectionObserver(
  (changes) => {
    for (const { target, isIntersecting } of changes) {
      seen.set(target, isIntersecting);
      if (isIntersecting) waiting.get(target)?.();
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
export function paintNear(node: Element, paint: () => void, large = false): () => void {
  const near = seen.get(node);
  if (near || (near === undefined && !large)) {
    paint();
    return () => {};
  }
  const run = (): void => {
    stop();
    paint();
  };
  const timer = large ? 0 : window.setTimeout(run, REST);
  const stop = (): void => {
    clearTimeout(timer);
    waiting.delete(node);
  };
  waiting.set(node, run);
  return stop;
}
