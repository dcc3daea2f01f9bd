// SPDX-License-Identifier: Apache-2.0

// What the nodes with GPUs of each model have, as `nvtopo top` sums it up.

import type { NodeSum } from "../api";

export interface ModelSum {
  model: string; // "mixed" of nodes with GPUs of several
  nodes: number;
  gpus: number;
  used: number;
  free: number;
  bad: number;
  whole: number; // nodes of which all GPUs are free, and that pods may go to
  slots: Record<string, number>;
}

/** The models in the order of their names; nodes without GPUs are left out. */
export function modelsOf(nodes: NodeSum[]): ModelSum[] {
  const byModel = new Map<string, ModelSum>();
  for (const n of nodes) {
    if (n.gpus === 0) continue;
    let sum = byModel.get(n.model);
    if (!sum) {
      sum = { model: n.model, nodes: 0, gpus: 0, used: 0, free: 0, bad: 0, whole: 0, slots: {} };
      byModel.set(n.model, sum);
    }
    sum.nodes += 1;
    sum.gpus += n.gpus;
    sum.used += n.used;
    sum.free += n.free;
    sum.bad += n.bad;
    sum.whole += n.free === n.gpus && !n.closed && !n.noGraph ? 1 : 0;
    for (const [size, free] of Object.entries(n.slots)) sum.slots[size] = (sum.slots[size] ?? 0) + free;
  }
  return [...byModel.values()].sort((a, b) => a.model.localeCompare(b.model, "en", { numeric: true }));
}
