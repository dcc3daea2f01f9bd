// SPDX-License-Identifier: Apache-2.0

// The cluster as a tree of domains with its nodes as leaves, for the tree and the treemap.

import type { NodeSum } from "../api";

export interface Domain {
  kind: "domain";
  path: string; // domains from the outermost, joined by "/"; "" is the whole cluster
  name: string;
  level: string; // of the fabric; "cluster" for the root
  depth: number;
  children: Part[];
  totals: Totals;
}

export interface Leaf {
  kind: "node";
  path: string;
  name: string;
  depth: number;
  node: NodeSum;
  totals: Totals;
}

export type Part = Domain | Leaf;

/** What is opened by a click on a part. */
export type Target = Pick<Part, "kind" | "name" | "path">;

export interface Totals {
  nodes: number;
  gpus: number;
  used: number;
  free: number;
  bad: number;
  slots: Record<string, number>;
  capacity: Record<string, number>;
}

/** Nodes that are in no domain of a level are below one of that name. */
export const nowhere = "(no domain)";

/** The domains that a node is shown below: for one that is in none, a single one. */
export function domainsOf(n: NodeSum, levels: string[]): string[] {
  if (levels.length === 0) return [];
  return n.domains.some(Boolean) ? n.domains.map((d) => d || nowhere) : [nowhere];
}

export function buildTree(nodes: NodeSum[], levels: string[]): Domain {
  const root = domain("", "cluster", "cluster", 0);
  const byPath = new Map<string, Domain>([["", root]]);
  for (const node of nodes) {
    const above = [root];
    let path = "";
    for (const [i, name] of domainsOf(node, levels).entries()) {
      path = path ? `${path}/${name}` : name;
      let d = byPath.get(path);
      if (!d) {
        d = domain(path, name, levels[i] ?? "", i + 1);
        byPath.set(path, d);
        above[above.length - 1]?.children.push(d);
      }
      above.push(d);
    }
    const leaf: Leaf = { kind: "node", path: `${path}//${node.name}`, name: node.name, depth: above.length, node, totals: totalsOf(node) };
    above[above.length - 1]?.children.push(leaf);
    for (const d of above) addTo(d.totals, leaf.totals);
  }
  return root;
}

function domain(path: string, name: string, level: string, depth: number): Domain {
  const totals = { nodes: 0, gpus: 0, used: 0, free: 0, bad: 0, slots: {}, capacity: {} };
  return { kind: "domain", path, name, level, depth, children: [], totals };
}

function totalsOf(n: NodeSum): Totals {
  return { nodes: 1, gpus: n.gpus, used: n.used, free: n.free, bad: n.bad, slots: n.slots, capacity: n.capacity };
}

function addTo(sum: Totals, t: Totals): void {
  sum.nodes += t.nodes;
  sum.gpus += t.gpus;
  sum.used += t.used;
  sum.free += t.free;
  sum.bad += t.bad;
  for (const [size, n] of Object.entries(t.slots)) sum.slots[size] = (sum.slots[size] ?? 0) + n;
  for (const [size, n] of Object.entries(t.capacity)) sum.capacity[size] = (sum.capacity[size] ?? 0) + n;
}

/** The parts in the order in which a tree shows them, without what is below a folded domain. */
export function visibleParts(root: Domain, folded: ReadonlySet<string>): Part[] {
  const out: Part[] = [];
  const walk = (part: Part) => {
    out.push(part);
    if (part.kind === "domain" && !folded.has(part.path)) part.children.forEach(walk);
  };
  walk(root);
  return out;
}

/** The domain of a path; the whole cluster if there is none such. */
export function find(root: Domain, path: string): Domain {
  let d = root;
  for (const name of path.split("/")) {
    const next = d.children.find((c): c is Domain => c.kind === "domain" && c.name === name);
    if (!next) return path === "" ? root : d;
    d = next;
  }
  return d;
}

/** Those whose name, model or domain contains the text. */
export function matching(nodes: NodeSum[], text: string): NodeSum[] {
  const t = text.trim().toLowerCase();
  if (!t) return nodes;
  return nodes.filter((n) => [n.name, n.model, ...n.domains].some((s) => s.toLowerCase().includes(t)));
}
