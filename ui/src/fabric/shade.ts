// SPDX-License-Identifier: Apache-2.0

import type { NodeSum } from "../api";

/** How a node is coloured: steps from 0 (no slot is free) to 4 (all are), or why it has no step. */
export type Shade = "0" | "1" | "2" | "3" | "4" | "none" | "closed" | "noGraph";

/** The shade of so many free slots of so many; "none" where even the empty node has no slot. */
export function shadeOf(free: number, capacity: number): Shade {
  if (capacity === 0) return "none";
  if (free === 0) return "0";
  const share = free / capacity;
  if (share >= 1) return "4";
  return share > 2 / 3 ? "3" : share > 1 / 3 ? "2" : "1";
}

export function nodeShade(n: NodeSum, size: number): Shade {
  if (n.noGraph) return "noGraph";
  if (n.closed) return "closed";
  return shadeOf(n.slots[size] ?? 0, n.capacity[size] ?? 0);
}

/** The end of a name, for where there is no room for all: "-004" of "h100-004". */
export function shortName(name: string): string {
  return name.slice(Math.max(0, name.lastIndexOf("-")));
}

/** What is written on a node: its free slots, or a sign where they do not count; "!" behind it if the node has a note. */
export function nodeSign(n: NodeSum, size: number): string {
  if (n.noGraph) return "?";
  if (n.closed) return "×";
  return ((n.capacity[size] ?? 0) === 0 ? "–" : String(n.slots[size] ?? 0)) + (n.note ? "!" : "");
}

/** Why a node has no GPUs to give, or what else is to be known of it; empty if there is nothing. */
export function nodeNote(n: NodeSum): string {
  return [n.closed, n.noGraph, n.note].filter(Boolean).join("; ");
}
