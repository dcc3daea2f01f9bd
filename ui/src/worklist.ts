// SPDX-License-Identifier: Apache-2.0

import type { WorkState, WorkSum } from "./api";

/**
 * The pods of some states that match a text: by state in the order given, then pending ones by how
 * long they wait, others by namespace and name.
 */
export function listOf(items: WorkSum[], states: WorkState[], text: string): WorkSum[] {
  const t = text.trim().toLowerCase();
  const rank = new Map(states.map((s, i) => [s, i]));
  return items
    .filter((w) => rank.has(w.state) && (t === "" || matches(w, t)))
    .sort((a, b) => (rank.get(a.state) ?? 0) - (rank.get(b.state) ?? 0) || compare(a, b));
}

function matches(w: WorkSum, text: string): boolean {
  return `${w.namespace}/${w.name} ${w.node} ${w.gang} ${w.tenant} ${w.queue}`.toLowerCase().includes(text);
}

function compare(a: WorkSum, b: WorkSum): number {
  if (a.state === "pending" && a.since !== b.since) return a.since < b.since ? -1 : 1;
  if (a.namespace !== b.namespace) return a.namespace < b.namespace ? -1 : 1;
  return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
}
