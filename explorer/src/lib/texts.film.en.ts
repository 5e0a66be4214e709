/** The texts of the training film in English. */

const steps = (step: number): string => step.toLocaleString("en");

export const filmTexts = {
  title: "Training film",
  slider: "Point in training",
  play: "Play",
  pause: "Pause",
  next: "Next snapshot",
  step: (step: number, last: number) => `step ${steps(step)} of ${steps(last)}`,
  finished: "finished model",
  loss: (loss: string) => `loss ${loss}`,
  value: (where: string, loss: string) => (loss ? `${where}, loss ${loss}` : where),
  about:
    "Held-out loss of each snapshot. Every snapshot is scored on the finished model's output, so all of them have the same tokens.",
  compare: "Compare points",
  compareHint: "Keep this point as the reference and compare other points with it",
  back: "Finished model",
  markers: (count: number) => `${count} marker${count === 1 ? "" : "s"}`,
  noMarkers: "No markers",
  marking: "Looking for markers…",
  head: (attention: string, head: number, pattern: string) =>
    `${attention} head ${head} becomes ${pattern}`,
  output: (text: string) => `the output for “${text}” becomes right`,
  at: (step: number | null) => (step === null ? "at the end" : `step ${steps(step)}`),
  probes: "This film was reduced to some texts. Choose one:",
  loading: (ready: number, all: number) => `${ready} of ${all} frames ready`,
  snapshot: (step: number) => `step ${steps(step)}`,
  library: (name: string, delta: string) => `logits of ${name}: max |Δ| ${delta}`,
  weightsOnly:
    "This trace has the attention weights only; the finished model has every stage that leads to them.",
  partialTitle: "This view is not part of the film",
  partial:
    "This trace has attention weights and outputs only. Use the Attention, All heads, Alignment, Output, Tokens or Compare page, or return to the finished model.",
};
