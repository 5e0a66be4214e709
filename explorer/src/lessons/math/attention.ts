/** Attention on small vectors, in float64: scores, softmax, weighted sums, cosines. */

export type Vector = readonly number[];

export const dot = (a: Vector, b: Vector): number =>
  a.reduce((sum, value, k) => sum + value * b[k]!, 0);
export const norm = (a: Vector): number => Math.sqrt(dot(a, a));
export const cosine = (a: Vector, b: Vector): number => dot(a, b) / (norm(a) * norm(b));
export const add = (a: Vector, b: Vector): number[] => a.map((value, k) => value + b[k]!);
export const subtract = (a: Vector, b: Vector): number[] => a.map((value, k) => value - b[k]!);
export const scale = (a: Vector, by: number): number[] => a.map((value) => value * by);
export const mean = (values: Vector): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

/** A copy with one element replaced. */
export const replaced = <T>(list: readonly T[], at: number, value: T): T[] =>
  list.map((old, k) => (k === at ? value : old));

/** Matrix (a list of rows) times vector. */
export const apply = (matrix: readonly Vector[], vector: Vector): number[] =>
  matrix.map((row) => dot(row, vector));

/** Softmax; the maximum is subtracted first, so that nothing overflows. −∞ gets weight 0. */
export function softmax(scores: Vector): number[] {
  const top = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - top));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

/** Σ αᵢ vᵢ */
export function weightedSum(weights: Vector, vectors: readonly Vector[]): number[] {
  return vectors[0]!.map((_, k) => weights.reduce((sum, w, i) => sum + w * vectors[i]![k]!, 0));
}

/** Weights of the Gaussian kernel: softmax of −(q − k)² / (2 h²). */
export const gaussianWeights = (query: number, keys: Vector, bandwidth: number): number[] =>
  softmax(keys.map((key) => -((query - key) ** 2) / (2 * bandwidth ** 2)));

/** Nadaraya–Watson regression: the values, averaged with the Gaussian kernel's weights. */
export const pool = (query: number, keys: Vector, values: Vector, bandwidth: number): number =>
  dot(gaussianWeights(query, keys, bandwidth), values);
