/** Reproducible random numbers: a 32-bit linear congruential generator and Box–Muller. */

/** Uniform numbers in (0, 1): x ← 1664525 x + 1013904223 mod 2³² (Numerical Recipes). */
export function uniform(seed: number): () => number {
  let x = seed >>> 0;
  return () => {
    x = (Math.imul(1664525, x) + 1013904223) >>> 0;
    return (x + 0.5) / 2 ** 32;
  };
}

/** Normal numbers with mean 0 and variance 1. */
export function normal(seed: number): () => number {
  const next = uniform(seed);
  return () => Math.sqrt(-2 * Math.log(next())) * Math.cos(2 * Math.PI * next());
}
