/** The server's requests and responses as types. */

export interface Quality {
  metric: string;
  value: number;
  unit: string;
  on: string;
}

/** The characters of the texts that a side was made for, if they are few, and their case. */
export interface InputAlphabet {
  alphabet: string | null;
  case: "lower" | "upper" | "any";
}

export interface Model {
  id: string;
  name: string;
  sha8: string;
  title: string;
  family: "transformer" | "recurrent";
  /** a hash: models with the same tokenizers read and write the same tokens */
  tokenizers: string;
  /** one of the pretrained models that come with Regard */
  included: boolean;
  task: "symbols" | "text";
  parameters: number;
  position: string | null;
  layers: { encoder: number; decoder: number };
  heads: number;
  width: number;
  quality: Quality[];
  /** the text it opens on, and more from its held-out set */
  example: string;
  examples: string[];
  /** what it reads and writes */
  input: Record<Side, InputAlphabet>;
  /** the longest text, in tokens, that the explorer accepts */
  max_tokens: number;
  /** a training film is beside the bundle */
  film: boolean;
}

/** Snapshots of a run with their held-out losses; "probes": of some texts only, without weights. */
export interface Film {
  kind: "snapshots" | "probes";
  steps: number[];
  losses: Real[];
  probes: { source: string; target: string }[];
}

/** An event in a film; a step of null is that of the finished model. */
export type FilmMarker =
  | { kind: "head"; step: number | null; attention: string; head: number; pattern: string }
  | { kind: "output"; step: number | null; probe: string };

export type Stack = "source" | "encoder" | "target" | "decoder" | "output";

export interface Block {
  id: string;
  title: string;
  stack: Stack;
  layer: number | null;
  kind: "embedding" | "attention" | "ffn" | "norm" | "recurrent" | "output";
  thumbnail: string | null;
  names: string[];
  parameters: { name: string; shape: number[] }[];
  count: number;
}

export interface Graph {
  family: Model["family"];
  settings: Record<string, unknown>;
  vocabulary: { source: number; target: number };
  parameters: number;
  blocks: Block[];
}

export interface Token {
  position: number;
  id: number;
  text: string;
  start: number | null;
  end: number | null;
  special: boolean;
}

export interface ScoredToken {
  id: number;
  text: string;
  logp: Real;
}

export type Side = "source" | "target";

export interface AttentionInfo {
  name: string;
  kind: "encoder" | "decoder" | "cross";
  layer: number;
  heads: number;
  query: Side;
  key: Side;
  stages: string[];
}

export interface TensorInfo {
  name: string;
  shape: number[];
  axes: string[];
  min: Real;
  max: Real;
  operation: string;
  formula: string;
  inputs: string[];
  parameters: string[];
}

export type Edit =
  | { kind: "ablate"; attention: string; head: number; by: "zero" | "mean" | "uniform" }
  | { kind: "row"; attention: string; head: number; query: number; weights: number[] }
  | { kind: "unscaled" | "unmasked"; attention: string | null }
  | { kind: "unpositioned" }
  | { kind: "shuffled"; seed: number }
  | { kind: "temperature"; at: string; value: number }
  | { kind: "force"; step: number; token: number }
  | { kind: "patch"; name: string; values: unknown };

/** Decoding options; the server knows more of them, with defaults. */
export interface Decoding {
  /** beam size; 1 is greedy search */
  beam: number;
}

export interface TraceRequest {
  model: string;
  source: string;
  target: string | null;
  decoding: Decoding;
  edits: Edit[];
  /** a step of the training film; absent for the finished model */
  checkpoint?: number;
}

export interface Trace {
  id: string;
  model: string;
  source: string;
  /** the target was given; otherwise the model generated it */
  teacher_forced: boolean;
  tokens: { source: Token[]; target: Token[] };
  /** symbols that the vocabularies lack; they were read as the unknown token */
  unknown: Record<Side, string[]>;
  /** for each decoder input, the target token that follows it */
  next_tokens: ScoredToken[];
  /** for each decoder input, the most probable next token */
  predicted_tokens: ScoredToken[];
  output: { text: string; logp: Real; score: Real };
  attentions: AttentionInfo[];
  tensors: TensorInfo[];
  edits: (Edit & { label: string })[];
  /** a step of the training film; null for the finished model */
  checkpoint: number | null;
  /** given numbers without a model: attention weights and outputs only */
  partial: boolean;
  check: {
    max_delta: number;
    dtype: string;
    against: string;
    /** of an imported model: its largest difference from the logits of the original's library */
    library?: { name: string; max_delta: number };
  } | null;
  seconds: number;
}

/** A number in JSON: non-finite values are strings. */
export type Real = number | "-inf" | "inf" | "nan";

export interface Operand {
  name: string;
  index: number[];
  value: Real;
  kind: "tensor" | "parameter" | "constant";
  /** the explanation of a number that the page computed itself */
  open?: () => Explanation;
}

export interface Explanation {
  name: string;
  index: number[];
  place: string;
  operation: string;
  formula: string;
  paper: string | null;
  columns: string[];
  rows: { operands: Operand[]; numbers: Real[]; running: Real | null; here: boolean }[];
  steps: { label: string; value: Real; operand: Operand | null }[];
  result: Real;
  value: Real;
  difference: Real;
  cut?: boolean;
}

export interface Neighbours {
  token: Token;
  neighbours: { id: number; text: string; cosine: number }[];
}

export interface EmbeddingSpace {
  points: {
    id: number;
    text: string;
    x: number;
    y: number;
    /** the squared distance from the mean of all points, in all dimensions */
    spread: number;
    positions: number[];
  }[];
  explained_variance: number[];
}

export interface Candidate {
  id: number;
  text: string;
  logit: Real;
  logp: Real;
  p: number;
}

export interface OutputRow {
  row: number;
  top: Candidate[];
  /** the first token of the text that was looked up */
  token: { id: number; text: string; rank: number; logp: Real; logit: Real } | null;
  vocabulary_size: number;
  entropy: number;
  logit_lens: {
    tensor: string;
    rank: number;
    p: number;
    top: { id: number; text: string; p: number }[];
  }[];
}

/** A hypothesis of a beam search. A pruned one scored `margin` below hypothesis `pruned_by`. */
export interface BeamNode {
  number: number;
  parent: number | null;
  step: number;
  id: number;
  text: string;
  logp: Real;
  total: Real;
  score: Real;
  status: "expanded" | "finished" | "pruned" | "stopped";
  pruned_by: number | null;
  margin: Real;
  /** the text so far, and whether tokenizing it again gives the same tokens */
  prefix: string;
  retokenizes: boolean;
}

export interface BeamTree {
  beam: number;
  length_penalty: { alpha: number; kind: string };
  /** the divisor of the score of a hypothesis that ends at each step */
  divisors: number[];
  nodes: BeamNode[];
  /** finished hypotheses, best first */
  outputs: number[];
}

export interface Alignment {
  matrix: number[][];
  pairs: [number, number][];
  text: string;
}

/** Loss of log-probability of each output token (row) when a source token (column) is hidden. */
export interface Occlusion {
  effects: number[][];
  /** the log-probability of the output token with the source token hidden */
  logps: number[][];
  /** rank correlation of each attention's weights with the effects */
  rank_correlations: Record<string, number | null>;
}

export interface ResidualStream {
  contributions: { tensor: string; norm: number; cosine: number; into: string }[];
  residuals: { tensor: string; norm: number }[];
}

export interface HeadStats {
  attention: string;
  kind: AttentionInfo["kind"];
  layer: number;
  head: number;
  entropy: number;
  distance: number | null;
  /** log-probability lost without the head; null until it is measured */
  effect: number | null;
  /** the strongest pattern, its score, and whether the head has its name */
  pattern: string;
  score: number;
  named: boolean;
  /** the cells of the pattern */
  rows: PatternRow[];
}

/** Keys from `first` to before `stop` and their share under uniform attention; null: not counted. */
export type PatternRow = [first: number, stop: number, uniform: number] | null;

export interface HeadStatistics {
  heads: Omit<HeadStats, "rows">[];
  /** the rows of each pattern by kind of attention and name */
  patterns: Record<string, Record<string, PatternRow[]>>;
}

export interface HeadAblation {
  base: { text: string; logp: Real };
  heads: { attention: string; head: number; text: string; logp: Real; effect: number }[];
}

export interface Tokenized {
  tokens: Omit<Token, "position">[];
  unknown: string[];
}

export type ExportFormat = "safetensors" | "npz" | "json" | "csv" | "html" | "python";
