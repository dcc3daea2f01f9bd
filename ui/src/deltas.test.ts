// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";

import type { Cluster, NodeSum, Supply, WorkSum, Workloads } from "./api";
import { addNodes, addWorkloads, applyNodes, applyWorkloads, noneWaiting } from "./deltas";

const supply: Supply = { nodes: 0, gpus: 0, usedGPUs: 0, freeGPUs: 0, badGPUs: 0, slots: [] };

function node(name: string, used = 0): NodeSum {
  return {
    name,
    domains: [],
    model: "",
    gpus: 8,
    used,
    free: 8 - used,
    bad: 0,
    slots: {},
    capacity: {},
    states: "",
    closed: "",
    noGraph: "",
    note: "",
  };
}

function cluster(...nodes: NodeSum[]): Cluster {
  return { version: 1, moment: "", resource: "", levels: [], supply, nodes, problems: [], features: { pools: false, gangs: false } };
}

function nodesEvent(version: number, changed: NodeSum[], removed: string[] = []) {
  return { version, moment: `m${version}`, supply: { ...supply, gpus: version }, changed, removed };
}

function work(name: string, state: WorkSum["state"]): WorkSum {
  return { namespace: "team", name, state } as WorkSum;
}

describe("changes of nodes", () => {
  const table: Record<string, { events: ReturnType<typeof nodesEvent>[]; want: [string, number][] }> = {
    "nothing waits": { events: [], want: [["a", 0], ["b", 0]] }, // prettier-ignore
    "a changed node stays in its place": { events: [nodesEvent(2, [node("a", 3)])], want: [["a", 3], ["b", 0]] }, // prettier-ignore
    "the last of several changes counts": {
      events: [nodesEvent(2, [node("b", 1)]), nodesEvent(3, [node("b", 2)])],
      want: [["a", 0], ["b", 2]], // prettier-ignore
    },
    "a new node comes by its name": { events: [nodesEvent(2, [node("aa")])], want: [["a", 0], ["aa", 0], ["b", 0]] }, // prettier-ignore
    "a new node may be the last": { events: [nodesEvent(2, [node("c")])], want: [["a", 0], ["b", 0], ["c", 0]] }, // prettier-ignore
    "a removed node is gone": { events: [nodesEvent(2, [], ["a"])], want: [["b", 0]] },
    "a node that came and went is not there": { events: [nodesEvent(2, [node("c")]), nodesEvent(3, [], ["c"])], want: [["a", 0], ["b", 0]] }, // prettier-ignore
    "a node that went and came is there": { events: [nodesEvent(2, [], ["a"]), nodesEvent(3, [node("a", 5)])], want: [["a", 5], ["b", 0]] }, // prettier-ignore
  };
  it.each(Object.entries(table))("%s", (_, { events, want }) => {
    const before = cluster(node("a"), node("b"));
    const waiting = noneWaiting();
    for (const e of events) addNodes(waiting, e);
    const after = applyNodes(before, waiting);
    expect(after.nodes.map((n) => [n.name, n.used])).toEqual(want);
    expect(before.nodes.map((n) => n.name)).toEqual(["a", "b"]);
    const last = events.at(-1);
    expect([after.version, after.moment, after.supply.gpus]).toEqual(last ? [last.version, last.moment, last.version] : [1, "", 0]);
  });

  it("puts new nodes to their domains, and those without one last", () => {
    const at = (name: string, ...domains: string[]): NodeSum => ({ ...node(name), domains });
    const waiting = noneWaiting();
    addNodes(waiting, nodesEvent(2, [at("z", "", ""), at("y", "s0", ""), at("x", "s0", "r1"), at("w", "s0", "r0")]));
    const before = cluster(at("b", "s0", "r0"), at("a", "s1", "r2"), at("c", "", ""));
    expect(applyNodes(before, waiting).nodes.map((n) => n.name)).toEqual(["b", "w", "x", "y", "a", "c", "z"]);
  });

  it("keeps the identity of what did not change", () => {
    const before = cluster(node("a"), node("b"));
    const waiting = noneWaiting();
    addNodes(waiting, nodesEvent(2, [node("a", 1)]));
    expect(applyNodes(before, waiting).nodes[1]).toBe(before.nodes[1]);
  });

  it("keeps at most one change of each node", () => {
    const waiting = noneWaiting();
    for (let i = 0; i < 1000; i++) addNodes(waiting, nodesEvent(i, [node(`n${i % 10}`, i % 8)]));
    expect(waiting.nodes.size).toBe(10);
  });
});

it("changes of workloads bring the counts along", () => {
  const counts = { pending: 1, running: 0, ended: 0, failing: 0 };
  const before: Workloads = { version: 1, moment: "", counts, items: [work("a", "pending")] };
  const waiting = noneWaiting();
  addWorkloads(waiting, {
    version: 2,
    counts: { ...counts, pending: 0, running: 2 },
    changed: [work("a", "running"), work("b", "running")],
    removed: [],
  });
  const after = applyWorkloads(before, waiting);
  expect(after.items.map((w) => [w.name, w.state])).toEqual([
    ["a", "running"],
    ["b", "running"],
  ]);
  expect(after.counts.running).toBe(2);
});
