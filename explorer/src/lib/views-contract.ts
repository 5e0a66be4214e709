/** The server's responses for the tokenization and for position encodings, as types. */

export interface SegmentedWord {
  text: string;
  tokens: { id: number | null; text: string }[];
  /** BPE: the symbols before the first merge, by name and as text */
  symbols: [string, string][];
  /** rank of the merged pair, index of its left symbol, the result by name and as text */
  merges: [number, number, string, string][];
  /** every pair of neighbours that has a rank: left, right, rank */
  ranks: [string, string, number][];
  /** unigram: the log-probability of each token */
  scores: number[];
}

export interface Tokenization {
  method: "bpe" | "unigram" | "wordpiece" | "characters" | "bytes" | "words" | "wordlevel";
  /** position of the first token; null if the tokens of the trace are not those of its text */
  first: number | null;
  /** unigram: the score of a token that is not in the vocabulary, 10 below the least of all */
  unknown_score: number | null;
  words: SegmentedWord[];
}

export interface PositionEncoding {
  name: string;
  /** why there is none for the sizes of this model; then the rest is absent */
  error?: string;
  formula: string;
  paper: string;
  /** the encoding of the open model, with its learned numbers */
  own: boolean;
  learned: boolean;
  /** a vector per position: added, or the rotated vector of ones */
  values: number[][] | null;
  /** one matrix, or one for each head */
  scores: number[][][];
  frequencies?: number[];
  order?: "paired" | "halves" | "neighbours";
  rotated?: number;
  slopes?: number[];
  /** which learned number each pair of positions reads */
  index?: number[][];
  scale?: number;
}

export interface PositionEncodings {
  width: number;
  heads: number;
  dim: number;
  count: number;
  encodings: PositionEncoding[];
}
