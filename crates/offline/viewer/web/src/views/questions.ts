// The questions that each view lives on: without answers to them it has nothing to show.
import type { Question } from "../source/answers";
import type { View } from "../state";

const QUESTIONS: Record<View, Question[]> = {
  overview: ["findings"],
  timeline: ["curve"],
  blocks: ["blocks"],
  flame: ["flame"],
  owners: ["owners"],
  steps: ["steps"],
  ranks: ["ranks"],
  pool: ["pool"],
  calls: ["calls"],
  watch: ["watch"],
  table: ["table/blocks", "table/events"],
};

export function questionsOf(view: View): Question[] {
  return QUESTIONS[view];
}
