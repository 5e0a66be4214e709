/** The training film of the current model: the slider's position, playing, prefetching, markers. */

import { parseAddress } from "./address";
import type { Film, FilmMarker, Trace } from "./contract";
import { short } from "./numbers";
import { app } from "./state.svelte";
import { filmTexts as t } from "./texts.film.en";

/** Milliseconds between two frames of the film while it plays. */
const FRAME = 140;
/** Milliseconds after which markers are requested: the server is free for the first view. */
const MARKERS_LATER = 1500;

class FilmState {
  info = $state.raw<Film | null>(null);
  markers = $state.raw<FilmMarker[] | null>(null);
  error = $state("");
  playing = $state(false);
  /** frames of the current text that are in the browser */
  ready = $state(0);
  private model = "";
  private seeking = false;
  private wanted: number | null = null;
  private timer = 0;
  private prefetching = 0;
  private prefetchTimer = 0;

  /** one index for each snapshot; the last one is the finished model */
  readonly last = $derived(this.info?.steps.length ?? 0);
  readonly index = $derived(this.indexOf(app.checkpoint));
  readonly total = $derived(this.info?.steps[this.last - 1] ?? 0);
  /** a film without weights shows its own texts only */
  readonly available = $derived(
    this.info !== null &&
      (this.info.kind === "snapshots" ||
        this.info.probes.some((probe) => probe.source === app.source.trim())),
  );
  /** the point that the Compare page uses as the reference; −1 for another model or text */
  readonly reference = $derived.by(() => {
    if (!app.reference) return -1;
    const { model, checkpoint } = parseAddress(app.reference);
    return model === app.modelId ? this.indexOf(checkpoint) : -1;
  });

  private indexOf(step: number | null): number {
    const at = step === null ? -1 : (this.info?.steps.indexOf(step) ?? -1);
    return at < 0 ? this.last : at;
  }

  /** The step at a position; null is the finished model. */
  step(index: number): number | null {
    return this.info?.steps[index] ?? null;
  }
  where(index: number): string {
    const step = this.step(index);
    return step === null ? t.finished : t.step(step, this.total);
  }
  loss(index: number): string {
    const loss = this.info?.losses[index];
    return typeof loss === "number" ? short(loss, 3) : "";
  }

  markerIndex(marker: FilmMarker): number {
    return this.indexOf(marker.step);
  }

  /** Loads the film of a model, if it has one. */
  async open(id: string, present: boolean): Promise<void> {
    if (this.model === id) return;
    this.model = id;
    this.info = this.markers = null;
    this.error = "";
    this.pause();
    if (!present || app.data.offline) return;
    try {
      const info = await app.data.film(id);
      if (this.model !== id) return;
      this.info = info;
      await new Promise((resolve) => setTimeout(resolve, MARKERS_LATER));
      if (this.model !== id) return;
      const markers = await app.data.filmMarkers(id);
      if (this.model === id) this.markers = markers;
    } catch (error) {
      if (this.model === id) this.error = (error as Error).message;
    }
  }

  /** Goes to a point. While a frame is loading, only the newest wish is kept. */
  async seek(index: number): Promise<void> {
    this.wanted = Math.max(0, Math.min(index, this.last));
    if (this.seeking) return;
    this.seeking = true;
    try {
      while (this.wanted !== null && this.wanted !== this.index) {
        app.checkpoint = this.step(this.wanted);
        await app.run();
      }
    } finally {
      this.wanted = null;
      this.seeking = false;
    }
    this.prefetchSoon();
  }

  /** Announces the point to screen readers, when the slider rests. */
  announce(): void {
    app.announce(t.value(this.where(this.index), this.loss(this.index)));
  }

  play(): void {
    if (this.index >= this.last) void this.seek(0);
    this.playing = true;
    const next = async (): Promise<void> => {
      if (!this.playing) return;
      await this.seek(this.index + 1);
      if (this.index >= this.last) this.pause();
      else this.timer = window.setTimeout(() => void next(), FRAME);
    };
    this.timer = window.setTimeout(() => void next(), FRAME);
  }
  pause(): void {
    this.playing = false;
    clearTimeout(this.timer);
  }

  /** Keeps this point as the reference, and goes to another point on the Compare page. */
  async compare(): Promise<void> {
    this.pause();
    app.setReference();
    app.go("compare");
    const text = app.trace?.output.text ?? null;
    await this.seek(this.index === this.last ? 0 : this.last);
    const { target } = parseAddress(app.reference);
    if (this.index !== this.last || app.target !== null || target === null) return;
    // A generated text may tokenize differently when it is given: then both points get the text.
    const reference = await app.data.frame(app.referenceRequest()!);
    const ids = (trace: Trace | null): string =>
      JSON.stringify(trace?.tokens.target.map((token) => token.id));
    if (ids(reference) === ids(app.trace)) return;
    app.target = text;
    await app.run();
  }

  /** Loads all frames of this text as the page shows them, once the user has moved the slider. */
  prefetchSoon(): void {
    clearTimeout(this.prefetchTimer);
    this.prefetchTimer = window.setTimeout(() => void this.prefetch(), 250);
  }
  private async prefetch(): Promise<void> {
    const [run, info, shown] = [++this.prefetching, this.info, app.trace];
    if (!info || !shown || !this.available || app.data.offline) return;
    const request = { ...app.currentRequest(), checkpoint: 0 };
    const key = JSON.stringify([request, app.page]);
    this.ready = 0;
    for (const step of info.steps) {
      try {
        const frame = await app.data.frame({ ...request, checkpoint: step });
        await app.data.prefetch(app.trace ?? shown, frame);
      } catch {
        return; // the slider reports it when it gets there
      }
      const now = JSON.stringify([{ ...app.currentRequest(), checkpoint: 0 }, app.page]);
      if (run !== this.prefetching || now !== key) return;
      this.ready++;
    }
  }
}

export const film = new FilmState();
