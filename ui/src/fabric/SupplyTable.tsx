// SPDX-License-Identifier: Apache-2.0
import type { Slots, Supply } from "../api";
import { Bar } from "../components/Bar";
import { percent } from "../format";

/** What the cluster has, as `nvtopo top` says it, in a row of cards. */
export function SupplyTable({ supply, size }: { supply: Supply; size: number }) {
  const { gpus, usedGPUs, freeGPUs, badGPUs } = supply;
  return (
    <section className="cards" aria-label="Supply">
      <div className="card">
        <div className="card-title">GPUs</div>
        <div className="big">
          {usedGPUs} <span className="dim">of {gpus} used</span>
        </div>
        <Bar
          total={gpus}
          parts={[
            { name: "used", value: usedGPUs, kind: "used" },
            { name: "unhealthy, partitioned or degraded", value: badGPUs, kind: "bad" },
          ]}
        />
        <div className="dim">
          {freeGPUs} free, {badGPUs} bad, {supply.nodes} nodes
        </div>
      </div>
      {supply.slots.map((s) => (
        <SlotsCard key={s.gpus} slots={s} current={s.gpus === size} />
      ))}
    </section>
  );
}

function SlotsCard({ slots, current }: { slots: Slots; current: boolean }) {
  return (
    <div className={current ? "card card-current" : "card"}>
      <div className="card-title">Slots of {slots.gpus}</div>
      <div className="big">
        {slots.free} <span className="dim">of {slots.capacity} free</span>
      </div>
      {(slots.linked ?? []).map((l) => (
        <div key={l.class} className="dim" title={`fragmented: the share of ${l.ideal} linked groups that is missing`}>
          {l.class}: {l.free} linked{l.ideal > 0 && `, ${percent(l.fragmentation)} fragmented`}
        </div>
      ))}
    </div>
  );
}
