/** What is on the screen, whatever is asked of a model: page, theme, tables, choices, the drawer, the live region. */

import { tick } from "svelte";
import type { Table } from "./save";

/** What the chosen number is: a tensor's name and an index into it. */
export interface Opened {
  name: string;
  index: number[];
}

/** A view that can be saved from the header. */
export interface Saveable {
  id: string;
  title: string;
  png?: () => HTMLCanvasElement | Promise<HTMLCanvasElement>;
  svg?: () => string | Promise<string>;
  table?: () => Table;
}

export class Shown {
  page = $state("start");
  theme = $state<"" | "light" | "dark">("");
  systemDark = $state(false);
  tables = $state.raw<string[]>([]);
  /** what single pages let one choose, kept in the address: read `option(name)`, write `choose(name, value)` */
  options = $state.raw<Record<string, string>>({});
  /** the arithmetic drawer: the way from the first number to the one now shown */
  trail = $state.raw<Opened[]>([]);
  /** whether the last input was the keyboard's: then focus follows what opens */
  keyed = false;
  /** what the live region says */
  said = $state("");

  views = new Map<string, Saveable>();
  currentView = "";
  private opener: HTMLElement | null = null;

  readonly dark = $derived(this.theme ? this.theme === "dark" : this.systemDark);
  readonly opened = $derived(this.trail[this.trail.length - 1] ?? null);

  protected followSystem(): void {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    this.systemDark = dark.matches;
    dark.addEventListener("change", () => (this.systemDark = dark.matches));
  }

  go(page: string): void {
    this.page = page;
  }

  /** Opens the arithmetic of a number. From inside the drawer it is one step deeper. */
  open(name: string, index: number[], deeper = false): void {
    if (!deeper && this.trail.length === 0)
      this.opener = document.activeElement as HTMLElement | null;
    this.trail = deeper ? [...this.trail, { name, index }] : [{ name, index }];
  }
  /** Back to an earlier number of the trail; below the first, the drawer closes and focus returns. */
  back(to = this.trail.length - 2): void {
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
  /** An empty value is the default and leaves the address. */
  choose(name: string, value: string): void {
    const { [name]: _, ...others } = this.options;
    this.options = value ? { ...others, [name]: value } : others;
  }

  toggleTable(view: string): void {
    this.tables = this.tables.includes(view)
      ? this.tables.filter((one) => one !== view)
      : [...this.tables, view];
  }

  /** Says something to people who listen. */
  say(text: string): void {
    this.said = "";
    void tick().then(() => (this.said = text));
  }
}
