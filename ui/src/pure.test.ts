// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";

import type { Member, WorkSum } from "./api";
import { objectPath } from "./api";
import { count, gbps, percent, utc } from "./format";
import type { Segment } from "./gang";
import { crossingsText, gangName, segmentsOf } from "./gang";
import { commandOf, stepOf } from "./keyboard";
import { gangPath, nodePath, podPath, withParams } from "./url";
import { listOf } from "./worklist";

describe("the URL", () => {
  it("keeps what is not changed, and drops what is empty", () => {
    const query = new URLSearchParams("state=pending&q=a");
    expect(withParams(query, { q: "", pod: "team/x" }).toString()).toBe("state=pending&pod=team%2Fx");
    expect(query.toString()).toBe("state=pending&q=a");
  });
  it("escapes names", () => {
    expect(nodePath("a b")).toBe("/nodes/a%20b");
    expect(podPath("team/x")).toBe("/workloads?pod=team%2Fx");
    expect(gangPath("ns/g?")).toBe("/gangs/ns/g%3F");
    expect(objectPath("explain/pod", "ns/p#")).toBe("explain/pod/ns/p%23");
  });
});

describe("keys", () => {
  const table: Record<string, { before: string; key: string; want: unknown }> = {
    "g then w": { before: "g", key: "w", want: { go: "/workloads" } },
    "g then g": { before: "g", key: "g", want: { go: "/gangs" } },
    "w alone": { before: "", key: "w", want: null },
    slash: { before: "x", key: "/", want: "search" },
    "question mark": { before: "g", key: "?", want: "help" },
  };
  it.each(Object.entries(table))("%s", (_, { before, key, want }) => expect(commandOf(before, key)).toEqual(want));
  it("move in lists", () => expect(["j", "ArrowUp", "PageDown", "x"].map(stepOf)).toEqual([1, -1, 10, 0]));
});

it("lists are in the order of states, then of waiting or of names", () => {
  const work = (name: string, state: WorkSum["state"], since = "") =>
    ({ namespace: "n", name, state, since, node: "", gang: "", tenant: "", queue: "q1" }) as WorkSum;
  const items = [
    work("b", "running"),
    work("a", "running"),
    work("late", "pending", "2026-01-02"),
    work("early", "pending", "2026-01-01"),
    work("bad", "failing"),
  ];
  expect(listOf(items, ["pending"], "").map((w) => w.name)).toEqual(["early", "late"]);
  expect(listOf(items, ["failing", "running"], "").map((w) => w.name)).toEqual(["bad", "a", "b"]);
  expect(listOf(items, ["pending", "running"], "N/LA").map((w) => w.name)).toEqual(["late"]);
});

describe("segments of a gang", () => {
  const member = (rank: number, node: string, ...domains: string[]): Member => ({
    rank,
    pod: `n/p${rank}`,
    node,
    domains,
    gpus: [],
    state: "",
  });
  const text = (s: Segment): string => `${s.name}(${s.parts.map(text).join(" ") || s.members.map((m) => m.rank).join(",")})`;
  const table: Record<string, { members: Member[]; want: string }> = {
    "ranks of one node are together": { members: [member(1, "a", "s0", "r0"), member(0, "a", "s0", "r0")], want: "s0(r0(a(0,1)))" },
    "a rack that is left and entered again is there twice": {
      members: [member(0, "a", "s0", "r0"), member(1, "b", "s0", "r1"), member(2, "a", "s0", "r0")],
      want: "s0(r0(a(0)) r1(b(1)) r0(a(2)))",
    },
    "members without a node are left out": { members: [member(0, "", ""), member(1, "a", "s1", "r2")], want: "s1(r2(a(1)))" },
  };
  it.each(Object.entries(table))("%s", (_, { members, want }) => {
    expect(segmentsOf(members, ["spine", "rack"]).map(text).join(" ")).toBe(want);
  });
  it("are nodes where the fabric has no levels", () => expect(segmentsOf([member(0, "a")], []).map(text)).toEqual(["a(0)"]));
  it("are named without their kind", () => expect(["gang a/b", "PodGroup a/b", "a/b"].map(gangName)).toEqual(["a/b", "a/b", "a/b"]));
  it("cross what they cross", () => {
    expect(crossingsText({ spine: 0, rack: 2 })).toBe("2 rack");
    expect(crossingsText({})).toBe("none");
  });
});

it("numbers and times are as in the CLI", () => {
  expect([gbps(450), gbps(33.333), percent(0.666), count(1, "node"), count(2, "node")]).toEqual([
    "450 GB/s",
    "33.3 GB/s",
    "67 %",
    "1 node",
    "2 nodes",
  ]);
  expect(utc("2026-11-24T10:00:00.123Z")).toBe("2026-11-24T10:00:00Z");
});
