/** The state of the screen: page, theme, tables, page options, the drawer and the live region. */

import { tick } from "svelte";
import type { Explanation } from "./contract";
import type { Table } from "./save";

/** The number whose explanation is open: a tensor's name and an index into it. */
export interface Opened {
  name: string;
  index: number[];
  /** the explanation of a number that the page computed itself, such as a mean */
  made?: Explanation;
  /** a weight of the model: its table is shown instead of an explanation */
  weight?: boolean;
}

/** A view that can be saved from the header. */
export interface Saveable {
  id: string;
  title: string;
  png?: () => HTMLCanvasElement | Promise<HTMLCanvasElement>;
  svg?: () => string | Promise<string>;
  table?: () => Table;
}

export class ViewState {
  page = $state("start");
  theme = $state<"" | "light" | "dark">("");
  systemDark = $state(false);
  tables = $state.raw<string[]>([]);
  /** options of single pages, part of the address: `option(name)`, `setOption(name, value)` */
  options = $state.raw<Record<string, string>>({});
  /** the drawer: the path from the first explained number to the current one */
  trail = $state.raw<Opened[]>([]);
  /** the explanation requested last */
  explaining: Promise<unknown> = Promise.resolve();
  /** the last input came from the keyboard: focus then moves to what opens */
  usedKeyboard = false;
  /** the text of the live region */
  announcement = $state("");

  views = new Map<string, Saveable>();
  currentView = "";
  private opener: HTMLElement | null = null;
  /** the selection that the next explanation is shown with */
  private selection: (() => void) | null = null;
  /** counts what changes the drawer: a later click cancels an earlier one */
  protected turn = 0;

  readonly dark = $derived(this.theme ? this.theme === "dark" : this.systemDark);
  readonly opened = $derived(this.trail[this.trail.length - 1] ?? null);

  protected followSystemTheme(): void {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    this.systemDark = dark.matches;
    dark.addEventListener("change", () => (this.systemDark = dark.matches));
  }

  go(page: string): void {
    this.page = page;
  }

  /** Selects a number and opens its explanation; if that must be requested, both wait for it. */
  selectAndOpen(select: () => void, open: () => void): void {
    this.selection = select;
    open();
    this.takeSelection()?.();
  }
  protected takeSelection(): (() => void) | null {
    const { selection } = this;
    this.selection = null;
    return selection;
  }

  /** Opens the explanation of a number; `deeper` extends the path inside the drawer. */
  open(name: string, index: number[], deeper = false): void {
    this.takeSelection()?.();
    this.turn++;
    if (!deeper && this.trail.length === 0)
      this.opener = document.activeElement as HTMLElement | null;
    this.trail = deeper ? [...this.trail, { name, index }] : [{ name, index }];
  }
  /** Opens the explanation of a number that the page computed itself. */
  explain(made: Explanation, deeper = false): void {
    ViewState.prototype.open.call(this, made.name, made.index, deeper);
    this.trail = [...this.trail.slice(0, -1), { name: made.name, index: made.index, made }];
  }
  /** Opens the table of a weight, from an explanation that reads it. */
  openWeight(name: string, index: number[]): void {
    this.turn++;
    this.trail = [...this.trail, { name, index, weight: true }];
  }
  /** Returns to an earlier number of the path; before the first, the drawer closes. */
  back(to = this.trail.length - 2): void {
    this.turn++;
    this.trail = this.trail.slice(0, to + 1);
    if (this.trail.length === 0) {
      const opener = this.opener;
      this.opener = null;
      void tick().then(() => opener?.isConnected && opener.focus());
    }
  }
  close(): void {
    this.back(-1);
  }

  option(name: string): string {
    return this.options[name] ?? "";
  }
  /** An empty value is the default and is not part of the address. */
  setOption(name: string, value: string): void {
    const { [name]: _, ...others } = this.options;
    this.options = value ? { ...others, [name]: value } : others;
  }

  toggleTable(view: string): void {
    this.tables = this.tables.includes(view)
      ? this.tables.filter((one) => one !== view)
      : [...this.tables, view];
  }

  /** Announces a text to screen readers. */
  announce(text: string): void {
    this.announcement = "";
    void tick().then(() => (this.announcement = text));
  }
}
