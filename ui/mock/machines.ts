// SPDX-License-Identifier: Apache-2.0
import type { Links } from "../src/api";

export interface Machine {
  prefix: string;
  model: string;
  gpus: number;
  memoryGiB: number;
  fabric: string; // class of its usual ring
  gbps: number; // of that
  bestGBps: number;
  links: Links;
}

const h100: Machine = {
  prefix: "h100",
  model: "NVIDIA H100 80GB HBM3",
  gpus: 8,
  memoryGiB: 80,
  fabric: "NV18",
  gbps: 450,
  bestGBps: 450,
  links: linksOf(8, () => ["NV18", 450]),
};

// Cube mesh: two NVLinks to some neighbours, one to others, none to the rest.
const v100: Machine = {
  prefix: "v100",
  model: "Tesla V100-SXM2-32GB",
  gpus: 8,
  memoryGiB: 32,
  fabric: "NV1",
  gbps: 25,
  bestGBps: 50,
  links: linksOf(8, (a, b) => {
    if (Math.floor(a / 4) === Math.floor(b / 4)) return (a + b) % 3 === 0 ? ["NV2", 50] : ["NV1", 25];
    return b - a === 4 ? ["NV2", 50] : ["SYS", 12];
  }),
};

const l40s: Machine = {
  prefix: "l40s",
  model: "NVIDIA L40S",
  gpus: 4,
  memoryGiB: 48,
  fabric: "PIX",
  gbps: 24,
  bestGBps: 24,
  links: linksOf(4, (a, b) => (Math.floor(a / 2) === Math.floor(b / 2) ? ["PIX", 24] : ["SYS", 12])),
};

export function machineOf(i: number): Machine {
  if (i % 8 === 6) return v100;
  return i % 8 === 7 ? l40s : h100;
}

function linksOf(n: number, link: (a: number, b: number) => [string, number]): Links {
  const pair = (a: number, b: number): [string, number] => (a === b ? ["X", 0] : link(Math.min(a, b), Math.max(a, b)));
  const table = <T>(f: (a: number, b: number) => T) => Array.from({ length: n }, (_, a) => Array.from({ length: n }, (_, b) => f(a, b)));
  return { classes: table((a, b) => pair(a, b)[0]), bandwidthGBps: table((a, b) => pair(a, b)[1]) };
}
