// SPDX-License-Identifier: Apache-2.0
import { Anchor, Breadcrumbs, List, NativeSelect, SegmentedControl } from "@mantine/core";
import { useCallback, useMemo } from "react";
import { Link, useLocation } from "wouter";

import type { Cluster } from "../api";
import { PageTitle } from "../components/PageTitle";
import { EmptyState } from "../components/states";
import { FabricTree } from "../fabric/FabricTree";
import { FabricTreemap } from "../fabric/FabricTreemap";
import { ModelsTable } from "../fabric/ModelsTable";
import { ShadeLegend } from "../fabric/ShadeLegend";
import { SupplyTable } from "../fabric/SupplyTable";
import type { Target } from "../fabric/tree";
import { buildTree, find, matching } from "../fabric/tree";
import { useLive } from "../live";
import { nodePath, useParams } from "../url";

/** The fabric map: `view` tree or treemap, `size` of the slots, `in` a domain, `fold` domains, `q` a search. */
export function FabricPage() {
  const cluster = useLive((l) => l.cluster);
  return cluster && <Fabric cluster={cluster} />;
}

function Fabric({ cluster }: { cluster: Cluster }) {
  const [params, setParams] = useParams();
  const [, navigate] = useLocation();
  const sizes = cluster.supply.slots.map((s) => s.gpus);
  const size = Number(params.get("size")) || (sizes.includes(4) ? 4 : (sizes[0] ?? 1));
  const view = params.get("view") === "tree" ? "tree" : "treemap";
  const within = params.get("in") ?? "";
  const text = params.get("q") ?? "";

  const root = useMemo(
    () => find(buildTree(matching(cluster.nodes, text), cluster.levels), within),
    [cluster.nodes, cluster.levels, text, within],
  );
  const open = useCallback(
    (part: Target) => {
      if (part.kind === "node") navigate(nodePath(part.name));
      else setParams({ in: part.path });
    },
    [navigate, setParams],
  );

  return (
    <>
      <PageTitle text="Fabric map">
        <SegmentedControl
          size="xs"
          aria-label="Kind of map"
          data={[
            { value: "treemap", label: "Treemap" },
            { value: "tree", label: "Tree" },
          ]}
          value={view}
          onChange={(v) => setParams({ view: v === "tree" ? v : "" })}
        />
        <NativeSelect
          size="xs"
          aria-label="Size of the slots"
          data={sizes.map((s) => ({ value: String(s), label: `Slots of ${s} GPU${s === 1 ? "" : "s"}` }))}
          value={String(size)}
          onChange={(e) => setParams({ size: e.currentTarget.value })}
        />
        <Path within={within} />
      </PageTitle>
      <SupplyTable supply={cluster.supply} size={size} />
      <ModelsTable nodes={cluster.nodes} size={size} />
      <Problems problems={cluster.problems} />
      <Map nodes={root.totals.nodes} gpus={cluster.supply.gpus} text={text}>
        <ShadeLegend size={size} />
        {view === "tree" ? (
          <FabricTree root={root} size={size} sizes={sizes} onOpen={open} />
        ) : (
          <FabricTreemap root={root} size={size} onOpen={open} />
        )}
      </Map>
    </>
  );
}

function Map({ nodes, gpus, text, children }: { nodes: number; gpus: number; text: string; children: React.ReactNode }) {
  if (text && nodes === 0)
    return (
      <EmptyState title={`No node is named like “${text}”.`}>The search looks at names of nodes, their domains and GPU models.</EmptyState>
    );
  if (gpus === 0)
    return (
      <EmptyState title="No node reports GPUs.">
        Install nvtopo-exporter on the nodes that have GPUs: <code>kubectl apply -k manifests/exporter</code>, or the Helm chart. Each node
        then publishes a NodeGPUTopology, and is shown here.
      </EmptyState>
    );
  return children;
}

/** Links to the domains around the one that is shown. */
function Path({ within }: { within: string }) {
  const [params] = useParams();
  if (!within) return null;
  const names = within.split("/");
  const to = (path: string) => {
    const next = new URLSearchParams(params);
    if (path) next.set("in", path);
    else next.delete("in");
    return `/?${next.toString()}`;
  };
  return (
    <Breadcrumbs aria-label="Domain">
      <Anchor component={Link} href={to("")} size="sm">
        cluster
      </Anchor>
      {names.map((name, i) => (
        <Anchor key={name} component={Link} href={to(names.slice(0, i + 1).join("/"))} size="sm">
          {name}
        </Anchor>
      ))}
    </Breadcrumbs>
  );
}

function Problems({ problems }: { problems: string[] }) {
  if (problems.length === 0) return null;
  return (
    <div className="notice" role="note">
      <details>
        <summary>
          {problems.length === 1 ? problems[0] : `${problems.length} problems of nodes, labels, graphs and of reading them`}
        </summary>
        <List size="sm">
          {problems.map((p) => (
            <List.Item key={p}>{p}</List.Item>
          ))}
        </List>
      </details>
    </div>
  );
}
