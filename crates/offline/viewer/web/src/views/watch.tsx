// Watch: the watched blocks, and every change to them that no operator declared.
import { momentText } from "../canvas/time";
import { Panel } from "../components/controls";
import { DataTable } from "../components/data-table";
import { Minimap } from "../components/minimap";
import { Answered, Empty } from "../components/states";
import { placeText, shortAddress } from "../names";
import { useAnswer, usePage } from "../page";
import type { Watch, WatchChange } from "../source/answers";
import { text } from "../texts";
import { bytes, count } from "../units";
import { TrackCharts } from "./timeline";

export function WatchView() {
  const page = usePage();
  const reply = useAnswer("watch", { r: page.recording.r });
  return (
    <Answered reply={reply}>
      {(answer) =>
        answer.complete && answer.blocks.length === 0 ? (
          <Empty>{text("watch_none")}</Empty>
        ) : (
          <WatchTables answer={answer} />
        )
      }
    </Answered>
  );
}

function WatchTables({ answer }: { answer: Watch }) {
  const page = usePage();
  const { store } = page;
  return (
    <>
      <Panel title={text("watch_blocks")}>
        <DataTable
          label={text("watch_blocks")}
          columns={[
            { key: "name", title: text("name"), class: "name", cell: (row) => row.name || "-" },
            { key: "device", title: text("device"), cell: (row) => row.device },
            { key: "address", title: text("block_address"), class: "mono", cell: (row) => shortAddress(row.address) },
            { key: "bytes", title: text("bytes"), isNumber: true, cell: (row) => bytes(row.bytes) },
            { key: "looks", title: text("watch_looks"), isNumber: true, cell: (row) => count(row.looks) },
            {
              key: "declared",
              title: text("watch_declared"),
              isNumber: true,
              cell: (row) => count(row.declared_changes),
            },
            {
              key: "corruptions",
              title: text("watch_corruptions"),
              isNumber: true,
              cell: (row) => <b>{count(row.corruptions)}</b>,
            },
          ]}
          rows={answer.blocks}
          rowKey={(_, index) => index}
        />
        {answer.hunt && (
          <p class="muted wide">
            {text(
              "watch_hunt",
              count(answer.hunt.operators),
              count(answer.hunt.looks_taken),
              count(answer.hunt.looks_due),
            )}
          </p>
        )}
      </Panel>
      <Panel title={text("watch_changes")} class="wide">
        {answer.changes.length === 0 ? (
          <p class="muted">{text("watch_clean")}</p>
        ) : (
          <DataTable
            label={text("watch_changes")}
            columns={[
              { key: "t", title: text("time"), isNumber: true, cell: (row: WatchChange) => momentText(page, row.t) },
              { key: "step", title: text("step"), isNumber: true, cell: (row) => row.step ?? "-" },
              {
                key: "block",
                title: text("name"),
                class: "name",
                cell: (row) => answer.blocks[row.block]?.name ?? "-",
              },
              { key: "what", title: text("what"), class: "wrap", cell: (row) => row.sentence },
              {
                key: "place",
                title: text("site"),
                class: "wrap mono",
                cell: (row) => placeText(row.file, row.line) || "-",
              },
            ]}
            rows={answer.changes}
            rowKey={(_, index) => index}
            onRow={(row) => store.set({ t: row.t })}
            isSelected={(row) => row.t === page.state.t}
          />
        )}
        <div class="wide">
          <TrackCharts only="steps,operators,watch" />
          <Minimap />
        </div>
      </Panel>
    </>
  );
}
