/** What the server says and is told, as types. Nothing here runs. */

export interface Quality {
  metric: string;
  value: number;
  unit: string;
  on: string;
}

export interface Model {
  id: string;
  name: string;
  sha8: string;
  title: string;
  family: "transformer" | "recurrent";
  shipped: boolean;
  task: "symbols" | "text";
  parameters: number;
  position: string | null;
  layers: { encoder: number; decoder: number };
  heads: number;
  width: number;
  quality: Quality[];
  example: string;
  limit: number;
}

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

export interface Scored {
  id: number;
  text: string;
  logp: Real;
}

export type Side = "source" | "target";

export interface Attended {
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
  | { kind: "knock-out"; attention: string; head: number; by: "zero" | "mean" | "uniform" }
  | { kind: "row"; attention: string; head: number; query: number; weights: number[] }
  | { kind: "unscaled" | "unmasked"; attention: string | null }
  | { kind: "unpositioned" }
  | { kind: "shuffled"; seed: number }
  | { kind: "temperature"; at: string; value: number }
  | { kind: "force"; step: number; token: number }
  | { kind: "patch"; name: string; values: unknown };

export interface Decode {
  method: "greedy" | "beam";
  beam: number;
}

export interface TraceRequest {
  model: string;
  source: string;
  target: string | null;
  decode: Decode;
  edits: Edit[];
}

export interface Trace {
  id: string;
  model: string;
  source: string;
  given: boolean;
  tokens: { source: Token[]; target: Token[] };
  following: Scored[];
  predicted: Scored[];
  output: { text: string; logp: Real; score: Real };
  attentions: Attended[];
  tensors: TensorInfo[];
  edits: (Edit & { label: string })[];
  check: { max_delta: number; dtype: string; against: string } | null;
  seconds: number;
}

/** A number as JSON can carry it: not-finite ones travel as words. */
export type Real = number | "-inf" | "inf" | "nan";

export interface Operand {
  name: string;
  index: number[];
  value: Real;
  kind: "tensor" | "parameter" | "constant";
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

export interface Space {
  points: { id: number; text: string; x: number; y: number; here: number[] }[];
  explained: number[];
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
  word: { id: number; text: string; rank: number; logp: Real; logit: Real } | null;
  vocabulary: number;
  entropy: number;
  lens: { at: string; rank: number; p: number; top: { id: number; text: string; p: number }[] }[];
}

/** A beginning that a search weighed; `rival` stayed in its place and was `behind` better. */
export interface BeamNode {
  number: number;
  parent: number | null;
  step: number;
  id: number;
  text: string;
  logp: Real;
  total: Real;
  score: Real;
  fate: "kept" | "finished" | "pruned" | "stopped";
  rival: number | null;
  behind: Real;
  /** what was said so far, and whether it can be given back as a text */
  prefix: string;
  whole: boolean;
}

export interface BeamTree {
  size: number;
  length: { alpha: number; kind: string };
  /** what a sum is divided by when the answer ends at each step */
  penalties: number[];
  nodes: BeamNode[];
  /** the best first */
  answers: number[];
}

export interface Alignment {
  matrix: number[][];
  pairs: [number, number][];
  text: string;
}

/** What each answer token (row) loses when a source token (column) is hidden; how well weights foretell it. */
export interface Causes {
  effects: number[][];
  ranks: Record<string, number | null>;
}

export interface Walk {
  contributions: { at: string; norm: number; cosine: number; into: string }[];
  residuals: { at: string; norm: number }[];
}

export interface WallHead {
  attention: string;
  kind: Attended["kind"];
  layer: number;
  head: number;
  entropy: number;
  distance: number | null;
  effect: number | null;
}

export interface Sweep {
  base: { text: string; logp: Real };
  heads: { attention: string; head: number; text: string; logp: Real; effect: number }[];
}

export interface Tokenized {
  tokens: Omit<Token, "position">[];
  unknown: string[];
}

export type ExportFormat = "safetensors" | "npz" | "json" | "csv" | "html" | "python";
