// SPDX-License-Identifier: Apache-2.0
import { Anchor, Table, Text, Title } from "@mantine/core";
import { useState } from "react";
import { Link } from "wouter";

import type { GPU, NodeDetail, NodePod, Ring } from "../api";
import { GPUSign } from "../components/GPUStrip";
import { DataTable } from "../components/DataTable";
import { LinkGraph } from "../components/LinkGraph";
import { LinkMatrix } from "../components/LinkMatrix";
import { GangLink, PodLink } from "../components/links";
import { PageTitle } from "../components/PageTitle";
import { EmptyState, ErrorState, Loading, Notice } from "../components/states";
import { gbps, gib } from "../format";
import { gangName } from "../gang";
import { useLive } from "../live";
import { useFetched } from "../useFetched";

const letters = { free: "f", used: "u", degraded: "d", mig: "m", unhealthy: "x" } as const;

/** One node: its links, the pods on its GPUs, health, NUMA nodes and CPUs, as `nvtopo topology NODE`. */
export function NodePage({ name }: { name: string }) {
  const summary = useLive((l) => l.cluster?.nodes.find((n) => n.name === name));
  const levels = useLive((l) => l.cluster?.levels) ?? [];
  const { value: node, error, retry } = useFetched<NodeDetail>(`nodes/${encodeURIComponent(name)}`, summary);
  return (
    <>
      <PageTitle text={`Node ${name}`}>
        <DomainPath domains={node?.domains ?? []} levels={levels} />
        {node?.model && <Text size="sm">{node.model}</Text>}
      </PageTitle>
      {error && <ErrorState error={error} retry={retry} />}
      {node ? <Detail node={node} /> : !error && <Loading />}
    </>
  );
}

function DomainPath({ domains, levels }: { domains: string[]; levels: string[] }) {
  const links = domains.map((d, i) => ({ d, level: levels[i], path: domains.slice(0, i + 1).join("/") }));
  return links
    .filter(({ d }) => d !== "")
    .map(({ d, level, path }) => (
      <Anchor key={path} component={Link} size="sm" href={`/?in=${encodeURIComponent(path)}`}>
        {level} {d}
      </Anchor>
    ));
}

function Detail({ node }: { node: NodeDetail }) {
  const [lit, setLit] = useState<number[]>([]);
  const gpus = node.gpus ?? [];
  return (
    <>
      {node.noGraph && (
        <Notice title="Nobody chooses GPUs by this node’s graph">
          {node.noGraph}. Nothing of it counts as free. See whether nvtopo-exporter runs there.
        </Notice>
      )}
      {node.closed && <Notice title="Nothing goes to this node">{node.closed}</Notice>}
      {node.refuses && (
        <Notice title="Other nodes are preferred to this one">{node.refuses}. The node’s events and its kubelet’s log say why.</Notice>
      )}
      {node.note && <Notice title="What to know of this node">{node.note}</Notice>}
      {gpus.length === 0 ? (
        <EmptyState title="The node reports no GPUs.">Install nvtopo-exporter there; it publishes the node’s link graph.</EmptyState>
      ) : (
        <div className="two">
          <section aria-label="Link graph">
            <Title order={2} size="h5">
              Link graph
            </Title>
            <LinkGraph gpus={gpus} links={node.links} lit={lit} />
          </section>
          <section aria-label="Link matrix">
            <Title order={2} size="h5">
              Link matrix
            </Title>
            <LinkMatrix gpus={gpus} links={node.links} />
            <Rings rings={node.rings ?? []} largest={node.largest ?? null} />
          </section>
        </div>
      )}
      <Pods pods={node.pods ?? []} counted={node.countedGPUs ?? 0} onLit={setLit} />
      <GPUTable gpus={gpus} />
      <NUMATable node={node} />
    </>
  );
}

function Rings({ rings, largest }: { rings: Ring[]; largest: Ring | null }) {
  return (
    <Table aria-label="Best free rings" withRowBorders={false} w="auto">
      <Table.Tbody>
        <Table.Tr>
          <Table.Th scope="row">Largest free linked group</Table.Th>
          <Table.Td>{largest ? `${largest.gpus.length} GPUs: ${largest.gpus.join("-")}, ${largest.class}` : "none"}</Table.Td>
        </Table.Tr>
        {rings.map((r) => (
          <Table.Tr key={r.gpus.length}>
            <Table.Th scope="row">Best free ring of {r.gpus.length}</Table.Th>
            <Table.Td>
              {r.gpus.join("-")} {r.class}, {gbps(r.bandwidthGBps)} of {gbps(r.bestBandwidthGBps)}
            </Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

function Pods({ pods, counted, onLit }: { pods: NodePod[]; counted: number; onLit: (gpus: number[]) => void }) {
  return (
    <section aria-label="Pods">
      <Title order={2} size="h5">
        Pods on its GPUs
      </Title>
      {counted > 0 && <Text size="sm">Of {counted} GPUs that pods hold nobody knows which these are.</Text>}
      {pods.length === 0 ? (
        <Text size="sm">No pod holds a GPU here.</Text>
      ) : (
        <DataTable label="Pods on its GPUs" head={["Pod", "GPUs", "Ring", "GB/s", "Best", "Note"]}>
          {pods.map((p) => (
            <Table.Tr
              key={p.uid}
              onMouseEnter={() => onLit(p.gpus)}
              onMouseLeave={() => onLit([])}
              onFocus={() => onLit(p.gpus)}
              onBlur={() => onLit([])}
            >
              <Table.Td>
                <PodLink name={`${p.namespace}/${p.name}`} />
              </Table.Td>
              <Table.Td>{p.gpus.length > 0 ? p.gpus.join(",") : `${p.counted ?? 0} by number`}</Table.Td>
              <Table.Td>{p.ring ? `${p.ring.gpus.join("-")} ${p.ring.class}` : "–"}</Table.Td>
              <Table.Td>{p.ring ? Number(p.ring.bandwidthGBps.toFixed(1)) : "–"}</Table.Td>
              <Table.Td>{p.ring ? Number(p.ring.bestBandwidthGBps.toFixed(1)) : "–"}</Table.Td>
              <Table.Td>
                <PodNote pod={p} />
              </Table.Td>
            </Table.Tr>
          ))}
        </DataTable>
      )}
    </section>
  );
}

function PodNote({ pod }: { pod: NodePod }) {
  return (
    <>
      {pod.gang && (
        <>
          Of gang <GangLink name={gangName(pod.gang)} />.{" "}
        </>
      )}
      {pod.gone && "It is gone; kubelet has not released its GPUs yet. "}
      {pod.unmovable && `Not to be moved: ${pod.unmovable}`}
    </>
  );
}

function GPUTable({ gpus }: { gpus: GPU[] }) {
  if (gpus.length === 0) return null;
  return (
    <section aria-label="GPUs">
      <Title order={2} size="h5">
        GPUs
      </Title>
      <DataTable label="GPUs of the node" head={["GPU", "State", "Pods", "NUMA", "CPUs", "Memory", "PCI", "UUID"]}>
        {gpus.map((g) => (
          <Table.Tr key={g.uuid}>
            <Table.Th scope="row">{g.index}</Table.Th>
            <Table.Td>
              <GPUSign letter={letters[g.state]} /> {g.state}
              {g.reason && `, ${g.reason}`}
            </Table.Td>
            <Table.Td>
              {(g.pods ?? []).map((p) => (
                <PodLink key={p} name={p} />
              ))}
            </Table.Td>
            <Table.Td>{g.numaNode < 0 ? "not known" : g.numaNode}</Table.Td>
            <Table.Td>{g.cpus}</Table.Td>
            <Table.Td>{gib(g.memoryBytes)}</Table.Td>
            <Table.Td className="mono">{g.pciBusID}</Table.Td>
            <Table.Td className="mono">{g.uuid}</Table.Td>
          </Table.Tr>
        ))}
      </DataTable>
    </section>
  );
}

function NUMATable({ node }: { node: NodeDetail }) {
  const numa = node.numaNodes ?? [];
  if (numa.length === 0) return null;
  return (
    <section aria-label="NUMA nodes">
      <Title order={2} size="h5">
        NUMA nodes
      </Title>
      <DataTable label="NUMA nodes of the node" head={["NUMA", "GPUs", "CPUs", "Memory", "Adapters"]}>
        {numa.map((n) => (
          <Table.Tr key={n.id}>
            <Table.Th scope="row">{n.id}</Table.Th>
            <Table.Td>
              {(node.gpus ?? [])
                .filter((g) => g.numaNode === n.id)
                .map((g) => g.index)
                .join(",") || "–"}
            </Table.Td>
            <Table.Td>{n.cpus}</Table.Td>
            <Table.Td>{gib(n.memoryBytes)}</Table.Td>
            <Table.Td>
              {(node.nics ?? [])
                .filter((a) => a.numaNode === n.id)
                .map((a) => a.name)
                .join(", ") || "–"}
            </Table.Td>
          </Table.Tr>
        ))}
      </DataTable>
    </section>
  );
}
