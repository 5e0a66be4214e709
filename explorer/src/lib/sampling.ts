/**
 * Temperature, top-k and top-p of the next token, in the order of `regard.search.Sampling`:
 * softmax of z / T over the whole vocabulary; then at most k tokens, and only those before which
 * the cumulative probability is below p; the rest is renormalised.
 *
 * Of a large vocabulary in a saved page only the most probable tokens are known. Their
 * probabilities then have bounds: the other tokens are each at most as probable as the last known
 * one, and have a known total at T = 1.
 */

export interface Settings {
  temperature: number;
  /** null: no limit */
  topK: number | null;
  topP: number;
}

/** Tokens by falling probability. */
export interface Known {
  ids: number[];
  /** logits, or log-probabilities if only some tokens are known */
  scores: Float64Array;
  vocabulary: number;
}

export interface Range {
  low: number;
  high: number;
}

export interface Sampled {
  /** exp(z / T − largest) of each known token, and bounds of the sum over all others */
  weights: Float64Array;
  rest: Range;
  /** softmax(z / T) */
  shares: Range[];
  /** cumulative probability before each token */
  before: Range[];
  /** how many tokens remain */
  kept: Range;
  /** their probability */
  mass: Range;
  /** the renormalised probability of each known token; 0 if it is cut */
  final: Range[];
}

export const isExact = ({ low, high }: Range): boolean => high - low <= 1e-9 * Math.abs(high);

/** All tokens of a step by falling logit; of equal ones, the lower id first. */
export function allTokens(logits: ArrayLike<number>): Known {
  const ids = Array.from(logits, (_, id) => id).sort((a, b) => logits[b]! - logits[a]! || a - b);
  return {
    ids,
    scores: Float64Array.from(ids, (id) => logits[id]!),
    vocabulary: logits.length,
  };
}

/** Bounds of Σ exp(s / T) over the tokens that are not known, from their total at T = 1. */
function restOf({ scores, vocabulary }: Known, temperature: number, largest: number): Range {
  const count = vocabulary - scores.length;
  if (count <= 0) return { low: 0, high: 0 };
  const known = scores.reduce((sum, score) => sum + Math.exp(score), 0);
  const mass = Math.max(0, 1 - known);
  const power = 1 / temperature;
  const scale = Math.exp(-largest * power);
  // Each is at most as probable as the last known one; equal ones bound the sum from the other side.
  const peaked = mass * Math.exp((power - 1) * scores[scores.length - 1]!) * scale;
  const equal = count * (mass / count) ** power * scale;
  return { low: Math.min(peaked, equal), high: Math.max(peaked, equal) };
}

/** How many tokens have a cumulative probability below p before them. */
function nucleus(before: number[], topP: number, vocabulary: number): number {
  if (topP >= 1) return vocabulary;
  const end = before.findIndex((sum) => sum >= topP);
  return end < 0 ? vocabulary : Math.max(1, end);
}

export function sample(known: Known, settings: Settings): Sampled {
  const { temperature, topK, topP } = settings;
  const largest = known.scores[0] ?? 0;
  const weights = known.scores.map((score) => Math.exp((score - largest) / temperature));
  const rest = restOf(known, temperature, largest);
  const sum = weights.reduce((total, weight) => total + weight, 0);
  const [most, least] = [sum + rest.high, sum + rest.low];
  const cumulative: number[] = [];
  let running = 0;
  for (const weight of weights) {
    cumulative.push(running);
    running += weight;
  }
  const shares = Array.from(weights, (w) => ({ low: w / most, high: w / least }));
  const before = cumulative.map((w) => ({ low: w / most, high: w / least }));
  const limit = Math.min(topK ?? Infinity, known.vocabulary);
  const count = (end: "low" | "high"): number =>
    Math.min(
      limit,
      nucleus(
        before.map((one) => one[end]),
        topP,
        known.vocabulary,
      ),
    );
  // A smaller sum over the others makes the known tokens more probable, so that fewer remain.
  const kept = { low: count("high"), high: count("low") };
  // If nothing ends inside the known tokens, the number that remains is unknown.
  if (topP < 1 && known.ids.length < known.vocabulary && kept.low > known.ids.length)
    kept.low = Math.min(limit, known.ids.length);
  const ends = [kept.low, kept.high].map((end) => {
    const inside = end >= known.ids.length ? running : cumulative[end]!;
    const all = end >= known.vocabulary;
    return {
      low: inside + (all ? rest.low : 0),
      high: inside + (end > known.ids.length ? rest.high : 0),
    };
  });
  const total = { low: ends[0]!.low, high: Math.max(ends[0]!.high, ends[1]!.high) };
  const final = Array.from(weights, (w, k) => ({
    low: k < kept.low ? w / total.high : 0,
    high: k < kept.high ? w / total.low : 0,
  }));
  const mass = { low: total.low / most, high: Math.min(1, total.high / least) };
  const whole = kept.low >= known.vocabulary;
  return { weights, rest, shares, before, kept, mass: whole ? { low: 1, high: 1 } : mass, final };
}
