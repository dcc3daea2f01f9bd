// SPDX-License-Identifier: Apache-2.0
import type { GPU, Links } from "../api";
import { gbps } from "../format";
import { linkKind } from "../linkclass";
import { gpuStates } from "./GPUStrip";

const size = 320;
const radius = 112;
const letters = { free: "f", used: "u", degraded: "d", mig: "m", unhealthy: "x" } as const;

/** GPUs on a circle, joined by their links: the faster the wider. */
export function LinkGraph({ gpus, links, lit }: { gpus: GPU[]; links: Links; lit: number[] }) {
  const pairs = pairsOf(gpus, links);
  const best = Math.max(1, ...pairs.map((p) => p.bandwidth));
  const classes = [...new Map(pairs.map((p) => [p.linkClass, p])).values()].sort((a, b) => b.bandwidth - a.bandwidth);
  return (
    <>
      <svg
        className="link-graph"
        viewBox={`-14 14 ${size + 28} ${size - 28}`}
        role="img"
        aria-label={`Link graph of ${gpus.length} GPUs; the matrix has the same as text`}
      >
        {pairs.map((p) => (
          <line
            key={p.key}
            {...ends(p.a, p.b, gpus.length)}
            className={`link link-${linkKind(p.linkClass)}${lit.includes(p.from) && lit.includes(p.to) ? " link-lit" : ""}`}
            strokeWidth={linkKind(p.linkClass) === "fabric" ? 1 + (3.5 * p.bandwidth) / best : 1}
          >
            <title>{`GPU ${p.from} and ${p.to}: ${p.linkClass}, ${gbps(p.bandwidth)}`}</title>
          </line>
        ))}
        {gpus.map((g, i) => {
          const { x, y } = place(i, gpus.length);
          return (
            <g
              key={g.uuid}
              transform={`translate(${x},${y})`}
              className={`graph-gpu gpu-${letters[g.state]}${lit.includes(g.index) ? " graph-lit" : ""}`}
            >
              <title>{`GPU ${g.index}: ${g.state}${g.pods?.length ? `, ${g.pods.join(", ")}` : ""}`}</title>
              <circle r={20} />
              <text y={-4}>{g.index}</text>
              <text y={10} className="graph-sign">
                {gpuStates[letters[g.state]].sign}
              </text>
              {g.numaNode >= 0 && (
                <text className="graph-numa" {...outward(i, gpus.length)}>
                  NUMA {g.numaNode}
                </text>
              )}
            </g>
          );
        })}
      </svg>
      <ul className="legend plain">
        {classes.map((c) => (
          <li key={c.linkClass}>
            <svg width="34" height="10" aria-hidden="true">
              <line
                x1="1"
                x2="33"
                y1="5"
                y2="5"
                className={`link link-${linkKind(c.linkClass)}`}
                strokeWidth={linkKind(c.linkClass) === "fabric" ? 3 : 1.5}
              />
            </svg>{" "}
            {c.linkClass}, {gbps(c.bandwidth)}
          </li>
        ))}
      </ul>
    </>
  );
}

interface Pair {
  key: string;
  a: number; // positions
  b: number;
  from: number; // indices
  to: number;
  linkClass: string;
  bandwidth: number;
}

function pairsOf(gpus: GPU[], links: Links): Pair[] {
  const pairs: Pair[] = [];
  for (const [a, from] of gpus.entries()) {
    for (const [b, to] of gpus.entries()) {
      const linkClass = links.classes[a]?.[b];
      if (b <= a || !linkClass) continue;
      pairs.push({ key: `${a}-${b}`, a, b, from: from.index, to: to.index, linkClass, bandwidth: links.bandwidthGBps[a]?.[b] ?? 0 });
    }
  }
  return pairs.sort((p, q) => p.bandwidth - q.bandwidth);
}

function place(i: number, n: number): { x: number; y: number } {
  const angle = (2 * Math.PI * (i + 0.5)) / n - Math.PI / 2;
  return { x: size / 2 + radius * Math.cos(angle), y: size / 2 + radius * Math.sin(angle) };
}

/** From a GPU to where its NUMA node is written. */
function outward(i: number, n: number): { x: number; y: number } {
  const { x, y } = place(i, n);
  return { x: (44 / radius) * (x - size / 2), y: (30 / radius) * (y - size / 2) };
}

function ends(a: number, b: number, n: number): { x1: number; y1: number; x2: number; y2: number } {
  const from = place(a, n);
  const to = place(b, n);
  return { x1: from.x, y1: from.y, x2: to.x, y2: to.y };
}
