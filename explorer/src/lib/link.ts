/** The address is the state: `#/attention?m=spelling@1a2b3c4d&h=2`, with only what is not the default. */

import type { Decode, Edit } from "./contract";

export interface Place {
  page: string;
  model: string;
  /** null: the model's own example */
  source: string | null;
  /** null: the model writes freely */
  target: string | null;
  decode: Decode;
  edits: Edit[];
  attention: string;
  head: number;
  query: number;
  key: number;
  row: number;
  theme: "" | "light" | "dark";
  /** views shown as tables */
  tables: string[];
  /** the number whose arithmetic is open: a tensor and an index in it */
  opened: { name: string; index: number[] } | null;
  /** the address of what is compared with, if anything is: its model, texts, search and edits */
  kept: string;
  /** what single pages let one choose, by name: `o.side=target` */
  options: Record<string, string>;
}

export const NOWHERE: Place = {
  page: "start",
  model: "",
  source: null,
  target: null,
  decode: { method: "greedy", beam: 4 },
  edits: [],
  attention: "",
  head: 0,
  query: 0,
  key: 0,
  row: 0,
  theme: "",
  tables: [],
  opened: null,
  kept: "",
  options: {},
};

const whole = (text: string | null | undefined): number => {
  const number = Number(text);
  return text && Number.isInteger(number) && number >= 0 ? number : 0;
};
const WORD = /^[\w.@-]{1,80}$/; // names of tensors, models, views
const OPTION = /^o\.[a-z]{1,20}$/;
const word = (text: string | null | undefined): string => (text && WORD.test(text) ? text : "");

function writeEdit(edit: Edit): string {
  switch (edit.kind) {
    case "knock-out":
      return ["cut", edit.attention, edit.head, edit.by].join("~");
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

function readEdit(text: string): Edit | null {
  const [kind, a = "", b = "", c = "", d = ""] = text.split("~");
  switch (kind) {
    case "cut":
      return c === "zero" || c === "mean" || c === "uniform"
        ? { kind: "knock-out", attention: word(a), head: whole(b), by: c }
        : null;
    case "row": {
      const weights = d.split("_").map(Number);
      return weights.every(Number.isFinite)
        ? { kind: "row", attention: word(a), head: whole(b), query: whole(c), weights }
        : null;
    }
    case "unscaled":
    case "unmasked":
      return { kind, attention: word(a) || null };
    case "unpositioned":
      return { kind };
    case "shuffled":
      return { kind, seed: whole(a) };
    case "temperature":
      return Number(b) > 0 ? { kind, at: word(a), value: Number(b) } : null;
    case "force":
      return { kind, step: whole(a), token: whole(b) };
    case "patch":
      try {
        return { kind, name: word(a), values: JSON.parse(b) };
      } catch {
        return null;
      }
    default:
      return null;
  }
}

/** Like encodeURIComponent, but what is harmless in a hash stays readable. */
const encode = (text: string): string =>
  encodeURIComponent(text)
    .replaceAll("%40", "@")
    .replaceAll("%2C", ",")
    .replaceAll("%3B", ";")
    .replaceAll("%20", "+");

/** The address of a place. */
export function write(place: Place): string {
  const parts: string[] = [];
  const put = (key: string, value: string | number): void =>
    void parts.push(`${key}=${encode(String(value))}`);
  if (place.model) put("m", place.model);
  if (place.source !== null) put("s", place.source);
  if (place.target !== null) put("t", place.target);
  if (place.decode.method === "beam") put("d", place.decode.beam);
  if (place.edits.length) put("e", place.edits.map(writeEdit).join(";"));
  if (place.attention) put("a", place.attention);
  if (place.head) put("h", place.head);
  if (place.query) put("i", place.query);
  if (place.key) put("j", place.key);
  if (place.row) put("r", place.row);
  if (place.theme) put("theme", place.theme);
  if (place.tables.length) put("table", place.tables.join(","));
  if (place.opened) put("x", [place.opened.name, ...place.opened.index].join(","));
  if (place.kept) put("with", place.kept);
  for (const name of Object.keys(place.options).sort()) put(`o.${name}`, place.options[name]!);
  return `#/${place.page}${parts.length ? `?${parts.join("&")}` : ""}`;
}

/** The place of an address; what cannot be read is left at its default. */
export function read(hash: string): Place {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const values = new URLSearchParams(search);
  const [name = "", ...index] = (values.get("x") ?? "").split(",");
  const beam = whole(values.get("d"));
  const theme = values.get("theme");
  return {
    page: word(path) || "start",
    model: word(values.get("m")),
    source: values.get("s"),
    target: values.get("t"),
    decode: beam ? { method: "beam", beam } : { ...NOWHERE.decode },
    edits: (values.get("e") ?? "").split(";").flatMap((text) => readEdit(text) ?? []),
    attention: word(values.get("a")),
    head: whole(values.get("h")),
    query: whole(values.get("i")),
    key: whole(values.get("j")),
    row: whole(values.get("r")),
    theme: theme === "light" || theme === "dark" ? theme : "",
    tables: (values.get("table") ?? "").split(",").filter((view) => WORD.test(view)),
    opened: word(name) ? { name, index: index.map(whole) } : null,
    kept: values.get("with") ?? "",
    options: Object.fromEntries(
      [...values]
        .filter(([key]) => OPTION.test(key))
        .map(([key, value]) => [key.slice(2), value.slice(0, 80)]),
    ),
  };
}
