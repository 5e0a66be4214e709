/** The lessons in their order: number, id in the code, title and the question that each answers. */

export interface LessonEntry {
  number: string;
  id: string;
  title: string;
  question: string;
}

const entry = (number: string, id: string, title: string, question: string): LessonEntry => ({
  number,
  id,
  title,
  question,
});

export const LESSON_LIST: LessonEntry[] = [
  entry("1", "pooling", "Pooling as regression", "How does attention average?"),
  entry("2", "king", "King and queen", "Can arrows between words carry meaning?"),
  entry("3", "bank", "Bank of the river", "How does a word take its meaning from its context?"),
  entry("4", "spaces", "Three spaces", "Why queries, keys and values?"),
  entry("5", "scaling", "Why divide by √d", "What goes wrong with long vectors?"),
  entry("6", "order", "The man hit the car", "Does attention know the order of words?"),
  entry(
    "7",
    "positions",
    "Five ways to encode positions",
    "What happens beyond the trained length?",
  ),
  entry("8", "bottleneck", "The bottleneck and Bahdanau", "Why was attention invented?"),
  entry("9", "masks", "Masks and heads", "What may a token see, and what does one head do?"),
  entry(
    "10",
    "explanation",
    "Is attention an explanation?",
    "Do large weights mean large effects?",
  ),
  entry("A", "beam", "Appendix: greedy and beam search", "Is the best next token always best?"),
];
