// SPDX-License-Identifier: Apache-2.0

import type { HierarchyNode } from "d3-hierarchy";
import { hierarchy, treemap, treemapSquarify } from "d3-hierarchy";

import type { Domain, Part } from "./tree";

export interface Tile {
  part: Part;
  x: number;
  y: number;
  width: number;
  height: number;
}

// Pixels at the top of a domain for its name, and around what is in it.
const title = 18;
const padding = 3;
// No outermost domain gets less than this share of the map, so that its name can be read.
const leastShare = 0.08;

/**
 * Where each domain and node lies: a domain before what is in it. Only the tree's shape and the
 * number of GPUs of each node matter, so changes of what is free move nothing.
 */
export function layoutTreemap(root: Domain, width: number, height: number): Tile[] {
  const tree = hierarchy<Part>(root, (p) => (p.kind === "domain" ? p.children : undefined)).sum((p) =>
    p.kind === "node" ? Math.max(1, p.node.gpus) : 0,
  );
  const least = leastShare * (tree.value ?? 0);
  const outermost = tree.children ?? [];
  for (const child of outermost) stretch(child, least);
  Object.assign(tree, { value: outermost.reduce((sum, child) => sum + (child.value ?? 0), 0) });
  const place = treemap<Part>()
    .size([width, height])
    .tile(treemapSquarify.ratio(1))
    .paddingInner(2)
    .paddingOuter(padding)
    .paddingTop((d) => (d.depth === 0 ? 0 : title))
    .round(true);
  return place(tree)
    .descendants()
    .filter((d) => d.depth > 0)
    .map((d) => ({ part: d.data, x: d.x0, y: d.y0, width: d.x1 - d.x0, height: d.y1 - d.y0 }));
}

/** Makes all in a part greater by one factor, so that it is not less than `least`. */
function stretch(part: HierarchyNode<Part>, least: number): void {
  const value = part.value ?? 0;
  if (value <= 0 || value >= least) return;
  part.each((d) => Object.assign(d, { value: ((d.value ?? 0) * least) / value }));
}

/** Whether two trees have the same domains and nodes with as many GPUs, in the same order. */
export function sameShape(a: Part, b: Part): boolean {
  if (a.path !== b.path || a.totals.gpus !== b.totals.gpus) return false;
  if (a.kind === "node" || b.kind === "node") return a.kind === b.kind;
  return a.children.length === b.children.length && a.children.every((c, i) => b.children[i] !== undefined && sameShape(c, b.children[i]));
}
