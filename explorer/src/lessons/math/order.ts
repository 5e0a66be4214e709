/** Lesson 6: what attention makes of "man" in sentences of the same three words. */

import { add, dot, weightedSum, type Vector } from "./attention";

export const VECTORS: Record<string, Vector> = {
  man: [1, 0, 0, 0],
  hit: [0, 1, 0, 0],
  car: [0, 0, 1, 0],
};

/** Sinusoidal position (Vaswani et al. 2017): sin and cos of position / 10000^(2i/d). */
export const sinusoidal = (position: number, width: number): number[] =>
  Array.from({ length: width }, (_, k) => {
    const angle = position / 10000 ** ((k - (k % 2)) / width);
    return k % 2 ? Math.cos(angle) : Math.sin(angle);
  });

/** Σ (x · xᵢ) xᵢ for the word "man"; positions count from 1. */
export function contextOf(sentence: readonly string[], positions: boolean): number[] {
  const vectors = sentence.map((word, k) =>
    positions ? add(VECTORS[word]!, sinusoidal(k + 1, 4)) : VECTORS[word]!,
  );
  const query = vectors[sentence.indexOf("man")]!;
  return weightedSum(
    vectors.map((vector) => dot(query, vector)),
    vectors,
  );
}
