/** The texts that all lessons share, in English. */

/** The texts of one lesson. */
export interface LessonTexts {
  lead: string;
  question: string;
  options: string[];
  tasks: string[];
  /** the figure has points to drag */
  handles?: boolean;
  /** what was seen, in a sentence or two */
  seen: string;
  /** paragraphs; the first is the answer */
  explain: string[];
  formula: string;
  /** label of the link to the explorer's page */
  page: string;
  papers: string[];
}

export const frame = {
  title: "Lessons",
  lead:
    "Eleven lessons of about five minutes. In each you guess first, then try it with live " +
    "numbers, see what happens, and read why. Your progress stays in this browser.",
  done: (count: number, all: number) => `${count} of ${all} finished`,
  states: { fresh: "Start", started: "Continue", finished: "Finished" },
  lesson: (number: string) => (number === "A" ? "Appendix" : `Lesson ${number}`),
  steps: ["Guess", "Do", "See", "Explain"],
  stepOf: (step: number) => `Step ${step + 1} of 4`,
  continue: "Continue",
  skip: "Skip this",
  back: "Back",
  finish: "Finish the lesson",
  again: "Start again",
  all: "All lessons",
  next: (title: string) => `Next: ${title}`,
  guessed: "You guessed:",
  right: "That is right.",
  wrong: "It turns out otherwise:",
  noGuess: "You made no guess. The answer:",
  taskDone: (task: string) => `Done: ${task}`,
  open: "Done",
  tasksLeft: (left: number) => (left === 1 ? "One task left" : `${left} tasks left`),
  python: "The same in Python",
  copy: "Copy",
  copied: "Copied",
  copyFailed: "The browser does not allow copying; select the code instead.",
  papers: "Sources",
  inExplorer: "In the explorer",
  handles:
    "Drag the dots. By keyboard: focus a dot with Tab and move it with the arrow keys; Shift makes " +
    "larger steps.",
  tasksDone: (done: number, all: number) => `${done} of ${all} done`,
  toSee: "See the result",
  weight: "weight",
  score: "score",
  missing: (model: string) =>
    `This lesson uses the included model “${model}”, which is not open here. ` +
    "Start the explorer with `regard lesson`.",
};
