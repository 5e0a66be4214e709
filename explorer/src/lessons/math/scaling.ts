/** Lesson 5: scores, weights and gradients of random queries and keys of growing width. */

import { dot, mean, softmax, type Vector } from "./attention";
import { normal } from "./random";

export const WIDTHS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
export const KEYS = 8;
const QUERIES = 100;
const SEED = 7;

/** The size of softmax's Jacobian diag(α) − ααᵀ: the Frobenius norm. */
export function gradientNorm(weights: Vector): number {
  let sum = 0;
  weights.forEach((a, i) =>
    weights.forEach((b, j) => {
      sum += ((i === j ? a : 0) - a * b) ** 2;
    }),
  );
  return Math.sqrt(sum);
}

export interface Row {
  width: number;
  /** scores of the first query */
  scores: number[];
  variance: number;
  largest: number;
  gradient: number;
}

/** For each width: the first query's scores, and averages over all queries. */
export function measure(scaled: boolean): Row[] {
  const draw = normal(SEED);
  const widest = WIDTHS[WIDTHS.length - 1]!;
  // Partial dot products at every width, so that each number is drawn once.
  const scores = WIDTHS.map(() => [] as number[][]);
  for (let q = 0; q < QUERIES; q++) {
    const query = Array.from({ length: widest }, draw);
    for (const row of scores) row.push([]);
    for (let k = 0; k < KEYS; k++) {
      const key = Array.from({ length: widest }, draw);
      WIDTHS.forEach((width, w) => {
        const score = dot(query.slice(0, width), key.slice(0, width));
        scores[w]![q]!.push(scaled ? score / Math.sqrt(width) : score);
      });
    }
  }
  return WIDTHS.map((width, w) => {
    const weights = scores[w]!.map(softmax);
    return {
      width,
      scores: scores[w]![0]!,
      variance: mean(scores[w]!.flat().map((score) => score ** 2)),
      largest: mean(weights.map((row) => Math.max(...row))),
      gradient: mean(weights.map(gradientNorm)),
    };
  });
}
