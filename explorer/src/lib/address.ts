/** The state of the page as its address, `#/attention?m=spelling@1a2b3c4d&h=2`, less defaults. */

import type { Decoding, Edit } from "./contract";

export interface Address {
  page: string;
  model: string;
  /** null: the model's example */
  source: string | null;
  /** null: the model generates the target */
  target: string | null;
  decoding: Decoding;
  edits: Edit[];
  /** a step of the training film; null is the finished model */
  checkpoint: number | null;
  attention: string;
  head: number;
  query: number;
  key: number;
  row: number;
  theme: "" | "light" | "dark";
  /** views shown as tables */
  tables: string[];
  /** the number whose explanation is open: a tensor and an index into it */
  opened: { name: string; index: number[] } | null;
  /** the address of the reference on the Compare page: its model, texts, search and edits */
  reference: string;
  /** options of single pages by name: `o.side=target` */
  options: Record<string, string>;
}

export const DEFAULT_ADDRESS: Address = {
  page: "start",
  model: "",
  source: null,
  target: null,
  decoding: { beam: 1 },
  edits: [],
  checkpoint: null,
  attention: "",
  head: 0,
  query: 0,
  key: 0,
  row: 0,
  theme: "",
  tables: [],
  opened: null,
  reference: "",
  options: {},
};

const nonNegative = (text: string | null | undefined): number => {
  const number = Number(text);
  return text && Number.isInteger(number) && number >= 0 ? number : 0;
};
const NAME = /^[\w.@-]{1,80}$/; // names of tensors, models, views
const OPTION = /^o\.[a-z]{1,20}$/;
const safeName = (text: string | null | undefined): string => (text && NAME.test(text) ? text : "");

function formatEdit(edit: Edit): string {
  switch (edit.kind) {
    case "ablate":
      return ["ablate", edit.attention, edit.head, edit.by].join("~");
    case "row":
      return ["row", edit.attention, edit.head, edit.query, edit.weights.join("_")].join("~");
    case "unscaled":
    case "unmasked":
      return edit.attention ? `${edit.kind}~${edit.attention}` : edit.kind;
    case "unpositioned":
      return edit.kind;
    case "shuffled":
      return `shuffled~${edit.seed}`;
    case "temperature":
      return `temperature~${edit.at}~${edit.value}`;
    case "force":
      return `force~${edit.step}~${edit.token}`;
    case "patch":
      return `patch~${edit.name}~${JSON.stringify(edit.values)}`;
  }
}

function parseEdit(text: string): Edit | null {
  const [kind, a = "", b = "", c = "", d = ""] = text.split("~");
  switch (kind) {
    case "ablate":
      return c === "zero" || c === "mean" || c === "uniform"
        ? { kind: "ablate", attention: safeName(a), head: nonNegative(b), by: c }
        : null;
    case "row": {
      const weights = d.split("_").map(Number);
      return weights.every(Number.isFinite)
        ? {
            kind: "row",
            attention: safeName(a),
            head: nonNegative(b),
            query: nonNegative(c),
            weights,
          }
        : null;
    }
    case "unscaled":
    case "unmasked":
      return { kind, attention: safeName(a) || null };
    case "unpositioned":
      return { kind };
    case "shuffled":
      return { kind, seed: nonNegative(a) };
    case "temperature":
      return Number(b) > 0 ? { kind, at: safeName(a), value: Number(b) } : null;
    case "force":
      return { kind, step: nonNegative(a), token: nonNegative(b) };
    case "patch":
      try {
        return { kind, name: safeName(a), values: JSON.parse(b) };
      } catch {
        return null;
      }
    default:
      return null;
  }
}

/** Like encodeURIComponent, but characters that are safe in a hash stay readable. */
const encode = (text: string): string =>
  encodeURIComponent(text)
    .replaceAll("%40", "@")
    .replaceAll("%2C", ",")
    .replaceAll("%3B", ";")
    .replaceAll("%20", "+");

/** The hash of a state. */
export function formatAddress(address: Address): string {
  const parts: string[] = [];
  const add = (key: string, value: string | number): void =>
    void parts.push(`${key}=${encode(String(value))}`);
  if (address.model) add("m", address.model);
  if (address.source !== null) add("s", address.source);
  if (address.target !== null) add("t", address.target);
  if (address.decoding.beam > 1) add("d", address.decoding.beam);
  if (address.edits.length) add("e", address.edits.map(formatEdit).join(";"));
  if (address.checkpoint !== null) add("c", address.checkpoint);
  if (address.attention) add("a", address.attention);
  if (address.head) add("h", address.head);
  if (address.query) add("i", address.query);
  if (address.key) add("j", address.key);
  if (address.row) add("r", address.row);
  if (address.theme) add("theme", address.theme);
  if (address.tables.length) add("table", address.tables.join(","));
  if (address.opened) add("x", [address.opened.name, ...address.opened.index].join(","));
  if (address.reference) add("ref", address.reference);
  for (const name of Object.keys(address.options).sort()) add(`o.${name}`, address.options[name]!);
  return `#/${address.page}${parts.length ? `?${parts.join("&")}` : ""}`;
}

/** The state of a hash; invalid values become defaults. */
export function parseAddress(hash: string): Address {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const values = new URLSearchParams(search);
  const [name = "", ...index] = (values.get("x") ?? "").split(",");
  const theme = values.get("theme");
  return {
    page: safeName(path) || "start",
    model: safeName(values.get("m")),
    source: values.get("s"),
    target: values.get("t"),
    decoding: { beam: nonNegative(values.get("d")) || DEFAULT_ADDRESS.decoding.beam },
    edits: (values.get("e") ?? "").split(";").flatMap((text) => parseEdit(text) ?? []),
    checkpoint: values.has("c") ? nonNegative(values.get("c")) : null,
    attention: safeName(values.get("a")),
    head: nonNegative(values.get("h")),
    query: nonNegative(values.get("i")),
    key: nonNegative(values.get("j")),
    row: nonNegative(values.get("r")),
    theme: theme === "light" || theme === "dark" ? theme : "",
    tables: (values.get("table") ?? "").split(",").filter((view) => NAME.test(view)),
    opened: safeName(name) ? { name, index: index.map(nonNegative) } : null,
    reference: values.get("ref") ?? "",
    options: Object.fromEntries(
      [...values]
        .filter(([key]) => OPTION.test(key))
        .map(([key, value]) => [key.slice(2), value.slice(0, 80)]),
    ),
  };
}
