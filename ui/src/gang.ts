// SPDX-License-Identifier: Apache-2.0

import type { Member } from "./api";

/** A run of consecutive ranks in one domain, and in it the runs in its parts. */
export interface Segment {
  level: string; // of the fabric, or "node"
  name: string;
  members: Member[]; // where level is "node"
  parts: Segment[];
}

/**
 * The members in the order of their ranks, as segments of the outermost level, each divided by the
 * next level, and so on down to nodes. Members without a node are in none.
 */
export function segmentsOf(members: Member[], levels: string[]): Segment[] {
  const placed = members.filter((m) => m.node).sort((a, b) => a.rank - b.rank);
  return divide(placed, levels, 0);
}

function divide(members: Member[], levels: string[], depth: number): Segment[] {
  const level = levels[depth];
  const nameOf = (m: Member) => (level === undefined ? m.node : m.domains[depth] || "–");
  const out: Segment[] = [];
  for (const m of members) {
    let last = out.at(-1);
    if (!last || last.name !== nameOf(m)) {
      last = { level: level ?? "node", name: nameOf(m), members: [], parts: [] };
      out.push(last);
    }
    last.members.push(m);
  }
  if (level === undefined) return out;
  return out.map((s) => ({ ...s, members: [], parts: divide(s.members, levels, depth + 1) }));
}

/** The namespace/name of a gang that messages name with its kind before, such as "gang team/train". */
export function gangName(message: string): string {
  return message.slice(message.lastIndexOf(" ") + 1);
}

/** "2 rack, 1 spine"; "none" if a gang crosses nothing. */
export function crossingsText(crossings: Record<string, number>): string {
  return (
    Object.entries(crossings)
      .filter(([, n]) => n > 0)
      .map(([level, n]) => `${n} ${level}`)
      .join(", ") || "none"
  );
}

export function millis(v: number): string {
  return `${Number(v.toPrecision(3))} ms`;
}
