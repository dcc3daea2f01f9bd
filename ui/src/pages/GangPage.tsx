// SPDX-License-Identifier: Apache-2.0
import { Table, Text, Title } from "@mantine/core";

import type { GangDetail, Member } from "../api";
import { objectPath } from "../api";
import { ExplanationView } from "../components/ExplanationView";
import { DataTable } from "../components/DataTable";
import { NodeLink, PodLink } from "../components/links";
import { PageTitle } from "../components/PageTitle";
import { EmptyState, ErrorState, Loading, Notice } from "../components/states";
import type { Segment } from "../gang";
import { crossingsText, millis, segmentsOf } from "../gang";
import { useLive } from "../live";
import { useFetched } from "../useFetched";

/** One gang: its members by rank on the fabric, what they cross, what a collective is estimated to take. */
export function GangPage({ name }: { name: string }) {
  const version = useLive((l) => l.gangs);
  const { value: gang, error, retry } = useFetched<GangDetail>(objectPath("gangs", name), version);
  return (
    <>
      <PageTitle text={`Gang ${name}`} />
      {error && <ErrorState error={error} retry={retry} />}
      {gang ? <Detail gang={gang} /> : !error && <Loading />}
    </>
  );
}

function Detail({ gang }: { gang: GangDetail }) {
  const segments = segmentsOf(gang.members, gang.levels);
  return (
    <>
      {gang.warnings.map((w) => (
        <Notice key={w} title={w} />
      ))}
      {gang.reason && <Notice title="It cannot be placed">{gang.reason}</Notice>}
      <Facts gang={gang} />
      <section aria-label="Members on the fabric">
        <Title order={2} size="h5">
          Ranks on the fabric
        </Title>
        {segments.length > 0 ? (
          <div className="segments" tabIndex={0} role="region" aria-label="Ranks on the fabric, in their order">
            <Segments list={segments} />
          </div>
        ) : (
          <EmptyState title="No member has a node yet.">Why, is said below.</EmptyState>
        )}
      </section>
      {gang.explanation && (
        <section aria-label="Explanation">
          <Title order={2} size="h5">
            Explanation
          </Title>
          <ExplanationView explanation={gang.explanation} />
        </section>
      )}
      <Members members={gang.members} />
    </>
  );
}

function Facts({ gang }: { gang: GangDetail }) {
  const estimates = Object.entries(gang.placement?.estimateMs ?? {}).filter(([, v]) => Number(v) > 0);
  const facts: [string, string][] = [
    ["State", gang.state],
    ["Source", gang.source],
    ["Members placed", `${gang.placed} of ${gang.have}`],
    ["Start together", String(gang.minimum)],
    ["All within one", gang.level || "–"],
    ["Crossings", gang.placed > 0 ? crossingsText(gang.crossings) : "–"],
    ["Estimate", gang.estimateMillis > 0 ? `${millis(gang.estimateMillis)}, ${gang.exact ? "exact" : "not proven best"}` : "–"],
  ];
  if (gang.placement?.chosen) facts.push(["Chosen", [gang.placement.chosen, ...(gang.placement.others ?? [])].join("; ")]);
  if (gang.placement?.quality) facts.push(["Quality", gang.placement.quality]);
  if (estimates.length > 0) facts.push(["Estimates", estimates.map(([algorithm, ms]) => `${algorithm} ${millis(Number(ms))}`).join(", ")]);
  return (
    <dl className="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Boxes in boxes: domains around nodes around ranks, with an arrow where the next rank is elsewhere. */
function Segments({ list }: { list: Segment[] }) {
  return list.map((s, i) => (
    <div key={`${s.name}-${i}`} className="segment-and-arrow">
      {i > 0 && (
        <span className={`crossing crossing-${s.level === "node" ? "node" : "domain"}`} title={`the next rank is in another ${s.level}`}>
          {s.level === "node" ? "→" : `⇒ ${s.level}`}
        </span>
      )}
      <div className={`segment segment-${s.level === "node" ? "node" : "domain"}`}>
        <div className="segment-name">{s.level === "node" ? <NodeLink name={s.name} /> : `${s.level} ${s.name}`}</div>
        {s.level === "node" ? (
          s.members.map((m) => <Rank key={m.pod} member={m} />)
        ) : (
          <div className="segment-parts">
            <Segments list={s.parts} />
          </div>
        )}
      </div>
    </div>
  ));
}

function Rank({ member: m }: { member: Member }) {
  return (
    <div className="rank" title={`${m.pod}, ${m.state}`}>
      <b>{m.rank}</b> <span className="dim">GPUs {m.gpus.join(",") || "–"}</span>
    </div>
  );
}

function Members({ members }: { members: Member[] }) {
  return (
    <section aria-label="Members">
      <Title order={2} size="h5">
        Members
      </Title>
      {members.length === 0 ? (
        <Text size="sm">No pod of this gang is there.</Text>
      ) : (
        <DataTable label="Members by rank" head={["Rank", "Pod", "State", "Node", "Domains", "GPUs"]} tall>
          {members.map((m) => (
            <Table.Tr key={m.pod}>
              <Table.Th scope="row">{m.rank < 0 ? "–" : m.rank}</Table.Th>
              <Table.Td>
                <PodLink name={m.pod} />
              </Table.Td>
              <Table.Td>{m.state}</Table.Td>
              <Table.Td>{m.node ? <NodeLink name={m.node} /> : "–"}</Table.Td>
              <Table.Td>{m.domains.join(", ")}</Table.Td>
              <Table.Td>{m.gpus.join(",")}</Table.Td>
            </Table.Tr>
          ))}
        </DataTable>
      )}
    </section>
  );
}
