// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";

import type { NodeSum } from "../api";
import { modelsOf } from "./models";
import { nearest } from "./nearest";
import { nodeShade, nodeSign, shadeOf } from "./shade";
import { buildTree, find, matching, nowhere, visibleParts } from "./tree";
import { layoutTreemap, sameShape } from "./treemap";

function node(name: string, domains: string[], change: Partial<NodeSum> = {}): NodeSum {
  return {
    name,
    domains,
    model: "H100",
    gpus: 8,
    used: 4,
    free: 4,
    bad: 0,
    slots: { "4": 1 },
    capacity: { "4": 2 },
    states: "uuuuffff",
    closed: "",
    noGraph: "",
    note: "",
    ...change,
  };
}

const nodes = [node("a", ["s0", "r0"]), node("b", ["s0", "r1"]), node("c", ["s1", "r2"]), node("d", [])];
const levels = ["spine", "rack"];

describe("the tree", () => {
  const root = buildTree(nodes, levels);
  it("has each node below its domains, and those without one below a name of their own", () => {
    expect(visibleParts(root, new Set()).map((p) => `${p.depth} ${p.name}`)).toEqual([
      "0 cluster",
      "1 s0",
      "2 r0",
      "3 a",
      "2 r1",
      "3 b",
      "1 s1",
      "2 r2",
      "3 c",
      `1 ${nowhere}`,
      "2 d",
    ]);
  });
  it("has a node that is in no domain of a level below one of that level", () => {
    const part = buildTree([node("a", ["s0", ""]), node("b", ["", ""])], levels);
    expect(visibleParts(part, new Set()).map((p) => `${p.depth} ${p.name}`)).toEqual([
      "0 cluster",
      "1 s0",
      `2 ${nowhere}`,
      "3 a",
      `1 ${nowhere}`,
      "2 b",
    ]);
    expect(part.totals).toMatchObject({ nodes: 2, gpus: 16 });
  });
  it("adds up what its nodes have", () => {
    expect(root.totals).toMatchObject({ nodes: 4, gpus: 32, used: 16, slots: { "4": 4 }, capacity: { "4": 8 } });
    expect(find(root, "s0").totals).toMatchObject({ nodes: 2, gpus: 16 });
  });
  it("hides what is below a folded domain", () => {
    expect(visibleParts(root, new Set(["s0", "s1"])).map((p) => p.name)).toEqual(["cluster", "s0", "s1", nowhere, "d"]);
  });
  it("finds a domain, or the nearest above one that is gone", () => {
    expect(find(root, "s0/r1").name).toBe("r1");
    expect(find(root, "s0/r9").name).toBe("s0");
    expect(find(root, "").name).toBe("cluster");
  });
  it("has nodes directly below the cluster where there are no levels", () => {
    expect(buildTree(nodes, []).children.map((c) => c.name)).toEqual(["a", "b", "c", "d"]);
  });
});

it("a search finds names, domains and models", () => {
  expect(matching(nodes, "R1").map((n) => n.name)).toEqual(["b"]);
  expect(matching(nodes, "h100")).toHaveLength(4);
  expect(matching(nodes, " ")).toBe(nodes);
});

describe("the models", () => {
  const mixed = [
    node("e", [], { model: "A100", used: 0, free: 8, closed: "cordoned", slots: {} }),
    node("a", [], { model: "H200", used: 0, free: 8, slots: { "4": 2 } }),
    node("b", [], { model: "H200" }),
    node("c", [], { model: "A100", used: 2, free: 0, bad: 1, closed: "cordoned", slots: {} }),
    node("d", [], { model: "", gpus: 0, used: 0, free: 0, slots: {} }),
  ];
  it("sum up what their nodes have, in the order of their names", () => {
    expect(modelsOf(mixed)).toEqual([
      { model: "A100", nodes: 2, gpus: 16, used: 2, free: 8, bad: 1, whole: 0, slots: {} },
      { model: "H200", nodes: 2, gpus: 16, used: 4, free: 12, bad: 0, whole: 1, slots: { "4": 3 } },
    ]);
  });
});

describe("the treemap", () => {
  const tiles = layoutTreemap(buildTree(nodes, levels), 800, 600);
  const inside = tiles.filter((t) => t.part.kind === "node");
  it("has every node once, with an area", () => {
    expect(inside.map((t) => t.part.name).sort()).toEqual(["a", "b", "c", "d"]);
    for (const t of tiles) expect(t.width * t.height, t.part.path).toBeGreaterThan(0);
  });
  it("has no two nodes over each other, and all within the map", () => {
    for (const [i, t] of inside.entries()) {
      expect(t.x >= 0 && t.y >= 0 && t.x + t.width <= 800 && t.y + t.height <= 600, t.part.path).toBe(true);
      for (const o of inside.slice(i + 1)) {
        const apart = t.x + t.width <= o.x || o.x + o.width <= t.x || t.y + t.height <= o.y || o.y + o.height <= t.y;
        expect(apart, `${t.part.path} and ${o.part.path}`).toBe(true);
      }
    }
  });
  it("gives a small domain room for its name", () => {
    const many = Array.from({ length: 99 }, (_, i) => node(`n${i}`, ["s0", `r${i % 9}`]));
    const lone = layoutTreemap(buildTree([...many, node("lone", [])], levels), 1200, 600).find((t) => t.part.name === nowhere);
    expect(lone?.width).toBeGreaterThan(70);
  });
  it("stays where it is while only what is free changes", () => {
    const busy = nodes.map((n) => ({ ...n, used: 8, free: 0 }));
    expect(sameShape(buildTree(nodes, levels), buildTree(busy, levels))).toBe(true);
    expect(sameShape(buildTree(nodes, levels), buildTree(nodes.slice(1), levels))).toBe(false);
  });
});

describe("shades and signs", () => {
  const table: Record<string, { node: NodeSum; wantShade: string; wantSign: string }> = {
    "one of two slots": { node: node("a", []), wantShade: "2", wantSign: "1" },
    "none is free": { node: node("a", [], { slots: { "4": 0 } }), wantShade: "0", wantSign: "0" },
    "all are free": { node: node("a", [], { slots: { "4": 2 } }), wantShade: "4", wantSign: "2" },
    "too small": { node: node("a", [], { slots: {}, capacity: {} }), wantShade: "none", wantSign: "–" },
    closed: { node: node("a", [], { closed: "cordoned" }), wantShade: "closed", wantSign: "×" },
    "no graph, whatever else": { node: node("a", [], { closed: "cordoned", noGraph: "stale" }), wantShade: "noGraph", wantSign: "?" },
    "a kubelet that refuses pods": { node: node("a", [], { note: "kubelet refused 3 pods" }), wantShade: "2", wantSign: "1!" },
    "closed, with a note": {
      node: node("a", [], { closed: "cordoned", note: "kubelet refused 3 pods" }),
      wantShade: "closed",
      wantSign: "×",
    },
  };
  it.each(Object.entries(table))("%s", (_, { node: n, wantShade, wantSign }) => {
    expect([nodeShade(n, 4), nodeSign(n, 4)]).toEqual([wantShade, wantSign]);
  });
  it("never lose a step while more becomes free", () => {
    for (let capacity = 1; capacity <= 16; capacity++) {
      const steps = Array.from({ length: capacity + 1 }, (_, free) => Number(shadeOf(free, capacity)));
      expect(steps).toEqual([...steps].sort((a, b) => a - b));
      expect([steps[0], steps[capacity]]).toEqual([0, 4]);
    }
  });
});

it("an arrow goes to the tile beside, and nowhere at the edge", () => {
  const rect = (x: number, y: number) => ({ x, y, width: 10, height: 10 });
  const [a, b, c] = [rect(0, 0), rect(10, 0), rect(0, 10)];
  expect(nearest([a, b, c], a, "right")).toBe(b);
  expect(nearest([a, b, c], a, "down")).toBe(c);
  expect(nearest([a, b, c], b, "left")).toBe(a);
  expect(nearest([a, b, c], a, "up")).toBeUndefined();
});
