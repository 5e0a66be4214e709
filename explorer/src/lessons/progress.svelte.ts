/** Progress in the lessons, kept only in this browser. */

const KEY = "regard.lessons";

export interface Progress {
  /** the step reached: 0 guess, 1 do, 2 see, 3 explain */
  step: number;
  guess: number | null;
  /** tasks done */
  tasks: number[];
  finished: boolean;
}

const NONE: Progress = { step: 0, guess: null, tasks: [], finished: false };

function read(): Record<string, Progress> {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return stored && typeof stored === "object" ? (stored as Record<string, Progress>) : {};
  } catch {
    return {}; // storage is disabled, or its content is not ours
  }
}

class AllProgress {
  private all = $state.raw(read());

  of(id: string): Progress {
    return { ...NONE, ...this.all[id] };
  }
  update(id: string, change: Partial<Progress>): void {
    this.all = { ...this.all, [id]: { ...this.of(id), ...change } };
    this.write();
  }
  restart(id: string): void {
    const { [id]: _, ...others } = this.all;
    this.all = others;
    this.write();
  }
  readonly finished = $derived(Object.values(this.all).filter((one) => one.finished).length);

  private write(): void {
    try {
      localStorage.setItem(KEY, JSON.stringify(this.all));
    } catch {
      // progress then lasts as long as the page
    }
  }
}

export const progress = new AllProgress();
