// SPDX-License-Identifier: Apache-2.0

// What the stream says has changed, and how it becomes a new state. Pure functions: old states
// stay as they are, and items that did not change keep their identity, so that rows that show
// them need not be rendered again.

import type { Cluster, Counts, NodeSum, Supply, WorkSum, Workloads } from "./api";
import { fullName } from "./api";

export interface NodesEvent {
  version: number;
  moment: string;
  supply: Supply;
  changed: NodeSum[];
  removed: string[];
}

export interface WorkloadsEvent {
  version: number;
  counts: Counts;
  changed: WorkSum[];
  removed: string[];
}

/** Changes that no page has shown yet: of each item only the last one, so they are bounded by
 * the size of the cluster, however long a page is hidden. null: the item is gone. */
export interface Waiting {
  nodes: Map<string, NodeSum | null>;
  lastNodes: NodesEvent | null;
  works: Map<string, WorkSum | null>;
  lastWorks: WorkloadsEvent | null;
}

export function noneWaiting(): Waiting {
  return { nodes: new Map(), lastNodes: null, works: new Map(), lastWorks: null };
}

export function addNodes(w: Waiting, e: NodesEvent): void {
  for (const n of e.changed) w.nodes.set(n.name, n);
  for (const name of e.removed) w.nodes.set(name, null);
  w.lastNodes = e;
}

export function addWorkloads(w: Waiting, e: WorkloadsEvent): void {
  for (const item of e.changed) w.works.set(fullName(item), item);
  for (const name of e.removed) w.works.set(name, null);
  w.lastWorks = e;
}

export function applyNodes(c: Cluster, w: Waiting): Cluster {
  if (!w.lastNodes) return c;
  const { version, moment, supply } = w.lastNodes;
  return { ...c, version, moment, supply, nodes: replaced(c.nodes, w.nodes, (n) => n.name, compareNodes) };
}

export function applyWorkloads(all: Workloads, w: Waiting): Workloads {
  if (!w.lastWorks) return all;
  const { version, counts } = w.lastWorks;
  return { ...all, version, counts, items: replaced(all.items, w.works, fullName, compareWorks) };
}

/** The list with each changed item in its place, new ones where they belong, and without those that are gone. */
function replaced<T>(list: T[], changes: Map<string, T | null>, key: (item: T) => string, compare: (a: T, b: T) => number): T[] {
  const left = new Map(changes);
  const out: T[] = [];
  for (const item of list) {
    const k = key(item);
    const change = left.get(k);
    left.delete(k);
    if (change === undefined) out.push(item);
    else if (change !== null) out.push(change);
  }
  for (const item of left.values()) {
    if (item === null) continue;
    const after = out.findIndex((other) => compare(other, item) > 0);
    out.splice(after < 0 ? out.length : after, 0, item);
  }
  return out;
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** The order of the fabric: by domains, those without one last, then by name. */
function compareNodes(a: NodeSum, b: NodeSum): number {
  for (const [i, domain] of a.domains.entries()) {
    const other = b.domains[i] ?? "";
    if (domain !== other) return domain === "" ? 1 : other === "" ? -1 : compareText(domain, other);
  }
  return compareText(a.name, b.name);
}

function compareWorks(a: WorkSum, b: WorkSum): number {
  return compareText(a.namespace, b.namespace) || compareText(a.name, b.name);
}
