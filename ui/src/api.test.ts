// SPDX-License-Identifier: Apache-2.0

// What the server really answers, written by TestPageDocuments of pkg/webui, beside the types
// in api.ts. tsc finds a field that is missing or of another type.

import { expect, it } from "vitest";

import type { Bills, Cluster, Explanation, GangDetail, GangSum, History, NodeDetail, Pool, PoolHours, Usage, Workloads } from "./api";
import { gpuStates } from "./components/GPUStrip";
import { buildTree } from "./fabric/tree";
import { segmentsOf } from "./gang";
import cluster from "./testdata/cluster.json";
import bound from "./testdata/explain-bound.json";
import pending from "./testdata/explain-pending.json";
import gang from "./testdata/gang.json";
import gangs from "./testdata/gangs.json";
import history from "./testdata/history.json";
import graph from "./testdata/node-graph.json";
import node from "./testdata/node.json";
import bills from "./testdata/pools-bills.json";
import hours from "./testdata/pools-hours.json";
import usage from "./testdata/pools-usage.json";
import pools from "./testdata/pools.json";
import workloads from "./testdata/workloads.json";

/** A type as JSON that is imported has it: any string for one of several, any array for a tuple. */
type Loose<T> = T extends string
  ? string
  : T extends number | boolean | null | undefined
    ? T
    : T extends readonly (infer U)[]
      ? Loose<U>[]
      : { [K in keyof T]: Loose<T[K]> };

cluster satisfies Loose<Cluster>;
workloads satisfies Loose<Workloads>;
node satisfies Loose<NodeDetail>;
graph satisfies Loose<NodeDetail>;
pending satisfies Loose<Explanation>;
bound satisfies Loose<Explanation>;
gangs satisfies { items: Loose<GangSum>[] };
gang satisfies Loose<GangDetail>;
history satisfies Loose<History>;
pools satisfies { items: Loose<Pool>[] };
bills satisfies Loose<Bills>;
usage satisfies Loose<Usage>;
hours satisfies Loose<PoolHours>;

it("the tree adds up to what the server says of the cluster", () => {
  const { totals } = buildTree(cluster.nodes as unknown as Cluster["nodes"], cluster.levels);
  const { nodes, gpus, usedGPUs, freeGPUs, badGPUs } = cluster.supply;
  expect(totals).toMatchObject({ nodes, gpus, used: usedGPUs, free: freeGPUs, bad: badGPUs });
  for (const s of cluster.supply.slots) expect([totals.slots[s.gpus], totals.capacity[s.gpus]]).toEqual([s.free, s.capacity]);
});

it("states are those that the pages know", () => {
  for (const n of cluster.nodes) for (const letter of n.states) expect(Object.keys(gpuStates)).toContain(letter);
  for (const w of workloads.items) expect(["pending", "running", "ended", "failing"]).toContain(w.state);
  expect(Object.keys(workloads.counts).sort()).toEqual(["ended", "failing", "pending", "running"]);
  for (const e of history.entries) expect(["event", "condition", "decision", "record", "pod"]).toContain(e.source);
});

it("the matrix of links has a row and a column for each GPU", () => {
  for (const n of [node, graph]) {
    expect(n.links.classes.map((row) => row.length)).toEqual(n.gpus.map(() => n.gpus.length));
    expect(n.links.bandwidthGBps.map((row) => row.length)).toEqual(n.gpus.map(() => n.gpus.length));
  }
});

it("every placed member of a gang is in a segment", () => {
  const segments = segmentsOf(gang.members, gang.levels);
  expect(segments.flatMap((s) => s.parts.flatMap((r) => r.parts.flatMap((n) => n.members.map((m) => m.rank))))).toEqual([0, 1]);
});
