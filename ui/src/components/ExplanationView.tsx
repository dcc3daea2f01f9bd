// SPDX-License-Identifier: Apache-2.0
import { Table, Text, Title } from "@mantine/core";
import type { ReactNode } from "react";

import type { Blocker, Explanation, GPUSet } from "../api";
import { gbps, utc } from "../format";
import { gangName } from "../gang";
import { DataTable } from "./DataTable";
import { GangLink, NodeLink, PodLink } from "./links";

/** All that `nvtopo explain` says, with a link for each node and pod in it. */
export function ExplanationView({ explanation: e }: { explanation: Explanation }) {
  return (
    <div className="explanation">
      <section className={`cause cause-${e.state.toLowerCase()}`} aria-label="Reason">
        <Text fw={700}>
          {e.state}
          {e.cause && `: ${e.cause}`}
        </Text>
        {e.reason && <Text>{e.reason}</Text>}
        {e.next && (
          <Text size="sm" mt="xs">
            <b>Next:</b> {e.next}
          </Text>
        )}
      </section>
      {e.ignoredKeys && (
        <Part title="Keys without effect">
          <Text size="sm">{e.ignoredKeys}</Text>
        </Part>
      )}
      {(e.evidence ?? []).length > 0 && (
        <Part title="Evidence">
          <ul>
            {(e.evidence ?? []).map((line) => (
              <li key={line}>{line}</li>
            ))}
          </ul>
        </Part>
      )}
      <Candidates list={e.candidates ?? []} />
      <Refusals list={e.refusals ?? []} />
      <Relaxations list={e.relaxations ?? []} />
      {e.gang && e.kind === "Pod" && <GangPart gang={e.gang} />}
      {e.choice && <ChoicePart choice={e.choice} />}
      {e.scheduler && (
        <Part title="What the scheduler wrote on the pod">
          <Text size="sm">{e.scheduler}</Text>
        </Part>
      )}
    </div>
  );
}

function Part({ title, children }: { title: string; children: ReactNode }) {
  return (
    <div>
      <Title order={3} size="h6" mt="md" mb={4}>
        {title}
      </Title>
      {children}
    </div>
  );
}

/** "GPUs 0,1, NV12, 300 GB/s of 300", as the CLI says it. */
export function setText(s: GPUSet | undefined): string {
  if (!s) return "–";
  const gpus = `GPU${s.ring.length === 1 ? "" : "s"} ${s.ring.join(",")}`;
  if (!s.linkClass) return gpus;
  return `${gpus}, ${s.linkClass}, ${gbps(s.bandwidthGBps ?? 0)} of ${Number((s.bestGBps ?? 0).toFixed(1))}`;
}

function Candidates({ list }: { list: NonNullable<Explanation["candidates"]> }) {
  if (list.length === 0) return null;
  return (
    <Part title="Nearest nodes">
      <DataTable label="Nearest nodes" head={["Node", "Free", "In the way", "Then it gets"]}>
        {list.map((c) => (
          <Table.Tr key={c.node}>
            <Table.Td>
              <NodeLink name={c.node} />
            </Table.Td>
            <Table.Td>{c.free}</Table.Td>
            <Table.Td>
              {(c.blockers ?? []).map((b) => (
                <BlockerLine key={b.pod} blocker={b} />
              ))}
              {(c.blockers ?? []).length > 1 && !c.exact && <div className="dim">perhaps fewer do</div>}
              {(c.blockers ?? []).length === 0 &&
                (c.obstacles ?? []).map((o) => (
                  <div key={o.cause}>
                    {o.text}
                    {o.detail && <span className="dim"> ({o.detail})</span>}
                  </div>
                ))}
            </Table.Td>
            <Table.Td>{setText(c.gets)}</Table.Td>
          </Table.Tr>
        ))}
      </DataTable>
    </Part>
  );
}

function BlockerLine({ blocker: b }: { blocker: Blocker }) {
  return (
    <div>
      <PodLink name={b.pod} />
      {(b.gpus ?? []).length > 0 && ` (GPUs ${(b.gpus ?? []).join(",")})`}
      {b.movesTo && (
        <>
          , which <NodeLink name={b.movesTo} /> would take
        </>
      )}
      {b.stays && <span className="dim">, not to be moved: {b.stays}</span>}
    </div>
  );
}

function Refusals({ list }: { list: NonNullable<Explanation["refusals"]> }) {
  if (list.length === 0) return null;
  return (
    <Part title="Why nodes refuse">
      <DataTable label="Why nodes refuse" head={["Nodes", "Refuse for", "For example"]}>
        {list.map((r) => (
          <Table.Tr key={r.text}>
            <Table.Td>{r.nodes}</Table.Td>
            <Table.Td>{r.text}</Table.Td>
            <Table.Td className="names">
              {(r.named ?? []).map((n) => (
                <NodeLink key={n} name={n} />
              ))}
            </Table.Td>
          </Table.Tr>
        ))}
      </DataTable>
    </Part>
  );
}

function Relaxations({ list }: { list: NonNullable<Explanation["relaxations"]> }) {
  if (list.length === 0) return null;
  return (
    <Part title="If it asked for less">
      <DataTable label="If it asked for less" head={["Without", "Nodes", "On", "It gets"]}>
        {list.map((r) => (
          <Table.Tr key={r.wish}>
            <Table.Td>{r.wish}</Table.Td>
            <Table.Td>{r.nodes}</Table.Td>
            <Table.Td>{r.node ? <NodeLink name={r.node} /> : (r.level ?? "–")}</Table.Td>
            <Table.Td>{setText(r.gets)}</Table.Td>
          </Table.Tr>
        ))}
      </DataTable>
    </Part>
  );
}

function GangPart({ gang: g }: { gang: NonNullable<Explanation["gang"]> }) {
  return (
    <Part title="Its gang">
      <Text size="sm">
        <GangLink name={gangName(g.name)} />: {g.placed} of {g.have} members placed, {g.minimum || "nobody says how many"} start together
        {g.required && `; all within one ${g.required}`}
        {g.room !== undefined && g.required && `, where ${g.room} fit at the same time`}
      </Text>
    </Part>
  );
}

function ChoicePart({ choice: c }: { choice: NonNullable<Explanation["choice"]> }) {
  return (
    <Part title="Where it is">
      <Table withRowBorders={false}>
        <Table.Tbody>
          <Table.Tr>
            <Table.Th scope="row">Has</Table.Th>
            <Table.Td>
              {setText(c.set)} on <NodeLink name={c.node} />
            </Table.Td>
          </Table.Tr>
          {c.best && c.bestNode && (
            <Table.Tr>
              <Table.Th scope="row">Best now</Table.Th>
              <Table.Td>
                {setText(c.best)} on <NodeLink name={c.bestNode} />, were it placed now (
                {c.assumed ? `the shipped profile: no scheduler has published ${c.profile ?? ""}` : `profile ${c.profile ?? ""}`})
              </Table.Td>
            </Table.Tr>
          )}
        </Table.Tbody>
      </Table>
      {c.decision && <DecisionPart decision={c.decision} />}
    </Part>
  );
}

function DecisionPart({ decision: d }: { decision: NonNullable<NonNullable<Explanation["choice"]>["decision"]> }) {
  const kBpsPerGBps = 1_000_000;
  return (
    <>
      <Text size="sm" mt="xs">
        Chosen {utc(d.at)}
        {d.gang ? " by the plan of its gang" : ` of ${d.of ?? 0} nodes that were compared`}
        {Object.entries(d.no ?? {}).map(([why, n]) => `; ${n} refused for ${why}`)}
      </Text>
      {(d.c ?? []).length > 0 && (
        <DataTable label="Nodes that were compared" head={["Then", "Score", "Ring GB/s", "Bandwidth", "Latency", "Kept for others"]}>
          {(d.c ?? []).map((c) => (
            <Table.Tr key={c.n}>
              <Table.Td>
                <NodeLink name={c.n} />
              </Table.Td>
              <Table.Td>{c.s ? (c.s / 100).toFixed(2) : "–"}</Table.Td>
              <Table.Td>{c.r ? Number((c.r / kBpsPerGBps).toFixed(1)) : "–"}</Table.Td>
              {[0, 1, 2].map((i) => (
                <Table.Td key={i}>{c.t ? ((c.t[i] ?? 0) / 1000).toFixed(3) : "–"}</Table.Td>
              ))}
            </Table.Tr>
          ))}
        </DataTable>
      )}
    </>
  );
}
