// The views by their names in the address.
import type { FunctionComponent } from "preact";
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

const TABLE: Record<View, FunctionComponent> = {
  overview: OverviewView,
  timeline: TimelineView,
  blocks: BlocksView,
  flame: FlameView,
  owners: OwnersView,
  steps: StepsView,
  ranks: RanksView,
  pool: PoolView,
  calls: CallsView,
  watch: WatchView,
  table: TableView,
};

export function viewOf(view: View): FunctionComponent {
  return TABLE[view];
}
