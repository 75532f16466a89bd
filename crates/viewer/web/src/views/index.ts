// The views by their names in the address, and the questions each of them lives on.
import type { FunctionComponent } from "preact";
import type { Question } from "../source/answers";
import type { View } from "../state";
import { BlocksView } from "./blocks";
import { CallsView } from "./calls";
import { FlameView } from "./flame";
import { OverviewView } from "./overview";
import { OwnersView } from "./owners";
import { PoolView } from "./pool";
import { RanksView } from "./ranks";
import { StepsView } from "./steps";
import { TableView } from "./table";
import { TimelineView } from "./timeline";
import { WatchView } from "./watch";

const TABLE: Record<View, [FunctionComponent, Question[]]> = {
  overview: [OverviewView, ["findings"]],
  timeline: [TimelineView, ["curve"]],
  blocks: [BlocksView, ["blocks"]],
  flame: [FlameView, ["flame"]],
  owners: [OwnersView, ["owners"]],
  steps: [StepsView, ["steps"]],
  ranks: [RanksView, ["ranks"]],
  pool: [PoolView, ["pool"]],
  calls: [CallsView, ["calls"]],
  watch: [WatchView, ["watch"]],
  table: [TableView, ["table/blocks", "table/events"]],
};

export function viewOf(view: View): FunctionComponent {
  return TABLE[view][0];
}

export function questionsOf(view: View): Question[] {
  return TABLE[view][1];
}
