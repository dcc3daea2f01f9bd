// SPDX-License-Identifier: Apache-2.0

// A made-up cluster whose pods come and go, for work on the pages without a server, and for the
// load test. It decides nothing as nvtopo would: pods take the first free GPUs of a node.

import type { Cluster, Counts, GangDetail, Letter, Member, NodeDetail, NodePod, NodeSum, Supply, WorkSum, Workloads } from "../src/api";
import { machineOf } from "./machines";
import type { Machine } from "./machines";

const sizes = [8, 4, 2, 1];

interface Node {
  name: string;
  domains: string[];
  machine: Machine;
  letters: Letter[];
  pods: (string | null)[]; // on each GPU
  closed: string;
  noGraph: string;
  refuses: string;
}

export class MockCluster {
  version = 1;
  readonly nodes: Node[] = [];
  readonly works = new Map<string, WorkSum>();
  readonly gangs = new Map<string, GangDetail>();
  readonly changedNodes = new Set<string>();
  readonly changedWorks = new Set<string>();
  private readonly byName = new Map<string, Node>();
  private readonly loose: string[] = []; // running pods that may end
  private readonly random: () => number;
  private serial = 0;

  constructor(
    count: number,
    private readonly now: () => number = Date.now,
  ) {
    this.random = generator(count);
    for (let i = 0; i < count; i++) this.addNode(i);
    this.addGangs();
    this.addPending();
    // These stay, so that they can be in the way of others.
    for (let i = 0, placed = 0; placed < 3 && i < 1000; i++) if (this.place(`web-${placed}`, 2)) placed++;
    for (let i = 0; i < count * 2; i++) this.start();
  }

  private addNode(i: number): void {
    const rack = Math.floor(i / 8);
    const machine = machineOf(i);
    const node: Node = {
      name: `${machine.prefix}-${String(i).padStart(3, "0")}`,
      domains: i % 61 === 60 ? ["", ""] : [`s${Math.floor(rack / 4)}`, `r${rack}`],
      machine,
      letters: Array.from({ length: machine.gpus }, () => "f"),
      pods: Array.from({ length: machine.gpus }, () => null),
      closed: i % 37 === 19 ? "the node is cordoned" : "",
      noGraph: i % 41 === 23 ? "its graph is stale: the exporter's Lease has run out" : "",
      refuses:
        i % 43 === 3
          ? "kubelet refused 3 pods with GPUs within 5 minutes, the last with UnexpectedAdmissionError: other nodes are preferred"
          : "",
    };
    if (i % 13 === 5) node.letters[machine.gpus - 1] = "x";
    if (i % 17 === 9) node.letters[machine.gpus - 2] = "d";
    this.nodes.push(node);
    this.byName.set(node.name, node);
  }

  /** One gang on whole machines, that crosses a rack, and one that waits. */
  private addGangs(): void {
    const members: Member[] = this.nodes
      .filter((n) => n.machine.prefix === "h100" && !n.closed && !n.noGraph && !n.letters.includes("x") && n.domains[0] !== "")
      .slice(0, 8)
      .map((n, rank) => {
        const name = `llm-${rank}`;
        const gpus = n.letters.map((_, g) => g);
        for (const g of gpus) this.take(n, g, `train/${name}`);
        this.addWork({
          ...blank("train", name, 8, this.now()),
          state: "running",
          node: n.name,
          gpuIndices: gpus,
          gang: "train/llm",
          ...ringOf(n, 8),
        });
        return { rank, pod: `train/${name}`, node: n.name, domains: n.domains, gpus, state: "running" };
      });
    const crossings = members.filter((m, i) => i > 0 && m.domains[1] !== members[i - 1]?.domains[1]).length;
    this.gangs.set("train/llm", {
      namespace: "train",
      name: "llm",
      state: "running",
      source: "PodGroup",
      reason: "",
      levels: ["spine", "rack"],
      warnings: [],
      minimum: members.length,
      have: members.length,
      placed: members.length,
      level: "spine",
      domains: [...new Set(members.map((m) => m.domains[1] ?? ""))],
      crossings: { rack: crossings },
      estimateMillis: 12.34,
      exact: true,
      members,
      placement: {
        level: "spine",
        domains: { spine: ["s0"] },
        fewest: { rack: 2 },
        quality: "fewest racks",
        estimateMs: { ring: 12.34, tree: 15.1, hierarchical: 13.0, other: 0 },
        crossings,
        exact: true,
      },
      explanation: null,
    });
    const waiting = Array.from({ length: 4 }, (_, rank): Member => {
      const work = {
        ...blank("research", `sweep-${rank}`, 8, this.now() - 600_000),
        gang: "research/sweep",
        reason: "the gang has room for 1 of 4 members in one rack",
      };
      this.addWork(work);
      return { rank, pod: `research/sweep-${rank}`, node: "", domains: [], gpus: [], state: "pending" };
    });
    this.gangs.set("research/sweep", {
      namespace: "research",
      name: "sweep",
      state: "pending",
      source: "PodGroup",
      reason: "",
      levels: ["spine", "rack"],
      warnings: [],
      minimum: 4,
      have: 4,
      placed: 0,
      level: "rack",
      domains: [],
      crossings: {},
      estimateMillis: 0,
      exact: false,
      members: waiting,
      placement: null,
      explanation: null,
    });
  }

  private addPending(): void {
    this.addWork({
      ...blank("team", "trainer", 4, this.now() - 5_400_000),
      tenant: "team-a",
      queue: "batch",
      reason: "fewer free GPUs joined by NVLink than asked",
    });
    this.addWork({
      ...blank("team", "notebook", 1, this.now() - 40_000),
      tenant: "team-b",
      reason: "a taint that the pod does not tolerate",
    });
    this.addWork({
      ...blank("team", "broken", 1, this.now() - 90_000),
      state: "failing",
      node: this.nodes[0]?.name ?? "",
      reason: "CrashLoopBackOff",
    });
    this.addWork({ ...blank("team", "finished", 2, this.now() - 900_000), state: "ended", node: this.nodes[1]?.name ?? "" });
  }

  private addWork(w: WorkSum): void {
    const key = `${w.namespace}/${w.name}`;
    this.works.set(key, w);
    this.changedWorks.add(key);
  }

  private take(n: Node, gpu: number, pod: string): void {
    n.letters[gpu] = "u";
    n.pods[gpu] = pod;
    this.changedNodes.add(n.name);
  }

  /** One pod starts or ends. */
  step(): void {
    this.version++;
    if (this.loose.length > this.nodes.length * 2 || (this.loose.length > 0 && this.random() < 0.5)) this.end();
    else this.start();
  }

  private start(): void {
    const name = `job-${this.serial++}`;
    if (this.place(name, [1, 2, 4, 1, 2, 8][Math.floor(this.random() * 6)] ?? 1)) this.loose.push(`team/${name}`);
  }

  /** Puts a pod on some node, if that has room for it. */
  private place(name: string, size: number): boolean {
    const n = this.nodes[Math.floor(this.random() * this.nodes.length)];
    if (!n || n.closed || n.noGraph) return false;
    const free = n.letters.flatMap((l, g) => (l === "f" ? [g] : []));
    if (free.length < size) return false;
    const gpus = free.slice(0, size);
    for (const g of gpus) this.take(n, g, `team/${name}`);
    this.addWork({
      ...blank("team", name, size, this.now()),
      state: "running",
      node: n.name,
      gpuIndices: gpus,
      tenant: "team-a",
      queue: "batch",
      ...ringOf(n, size),
    });
    return true;
  }

  private end(): void {
    const at = Math.floor(this.random() * this.loose.length);
    const key = this.loose.splice(at, 1)[0] ?? "";
    const w = this.works.get(key);
    const n = this.byName.get(w?.node ?? "");
    if (!w || !n) return;
    for (const g of w.gpuIndices) {
      n.letters[g] = "f";
      n.pods[g] = null;
    }
    this.works.delete(key);
    this.changedWorks.add(key);
    this.changedNodes.add(n.name);
  }

  sum(n: Node): NodeSum {
    const count = (l: Letter) => n.letters.filter((x) => x === l).length;
    const free = n.closed || n.noGraph ? 0 : count("f");
    const open = !n.closed && !n.noGraph;
    const perSize = (gpus: number) => Object.fromEntries(sizes.map((s) => [s, Math.floor(gpus / s)]));
    return {
      name: n.name,
      domains: n.domains,
      model: n.machine.model,
      gpus: n.machine.gpus,
      used: count("u"),
      free,
      bad: count("x") + count("d") + count("m"),
      slots: perSize(free),
      capacity: perSize(open ? n.machine.gpus - count("x") - count("d") : 0),
      states: n.letters.join(""),
      closed: n.closed,
      noGraph: n.noGraph,
      note: n.refuses,
    };
  }

  sumOf(name: string): NodeSum | undefined {
    const n = this.byName.get(name);
    return n && this.sum(n);
  }

  supply(): Supply {
    const all = this.nodes.map((n) => this.sum(n));
    const total = (f: (n: NodeSum) => number) => all.reduce((t, n) => t + f(n), 0);
    return {
      nodes: all.length,
      gpus: total((n) => n.gpus),
      usedGPUs: total((n) => n.used),
      freeGPUs: total((n) => n.free),
      badGPUs: total((n) => n.bad),
      slots: sizes.map((gpus) => {
        const free = total((n) => n.slots[gpus] ?? 0);
        const ideal = Math.min(
          total((n) => n.capacity[gpus] ?? 0),
          Math.floor(total((n) => n.free) / gpus),
        );
        const linked = { class: "NV18", freeGPUs: 0, free, capacity: 0, ideal, fragmentation: ideal > 0 ? 1 - free / ideal : 0 };
        return { gpus, free, capacity: total((n) => n.capacity[gpus] ?? 0), ...(gpus > 1 ? { linked: [linked] } : {}) };
      }),
    };
  }

  cluster(): Cluster {
    return {
      version: this.version,
      moment: new Date(this.now()).toISOString(),
      resource: "nvidia.com/gpu",
      levels: ["spine", "rack"],
      supply: this.supply(),
      nodes: this.nodes.map((n) => this.sum(n)),
      problems: this.nodes.filter((n) => n.noGraph || n.refuses).map((n) => `node "${n.name}": ${n.noGraph || n.refuses}`),
      features: { pools: true, gangs: true },
    };
  }

  counts(): Counts {
    const counts: Counts = { pending: 0, running: 0, ended: 0, failing: 0 };
    for (const w of this.works.values()) counts[w.state]++;
    return counts;
  }

  workloads(): Workloads {
    return { version: this.version, moment: new Date(this.now()).toISOString(), counts: this.counts(), items: [...this.works.values()] };
  }

  node(name: string): NodeDetail | undefined {
    const n = this.byName.get(name);
    if (!n) return undefined;
    const { machine } = n;
    const words = { f: "free", u: "used", d: "degraded", m: "mig", x: "unhealthy" } as const;
    const half = machine.gpus / 2;
    return {
      name,
      domains: n.domains,
      closed: n.closed,
      noGraph: n.noGraph,
      refuses: n.refuses,
      model: machine.model,
      gpus: n.letters.map((l, index) => ({
        index,
        uuid: `GPU-${name}-${index}`,
        pciBusID: `0000:${(16 + index).toString(16)}:00.0`,
        model: machine.model,
        memoryBytes: machine.memoryGiB * 2 ** 30,
        numaNode: index < half ? 0 : 1,
        cpus: index < half ? "0-47,96-143" : "48-95,144-191",
        state: words[l],
        ...(l === "x" ? { reason: "Xid79" } : {}),
        pods: n.pods[index] ? [n.pods[index]] : [],
      })),
      numaNodes: [0, 1].map((id) => ({ id, cpus: id === 0 ? "0-47,96-143" : "48-95,144-191", memoryBytes: 2 ** 40 })),
      nics: [0, 1, 2, 3].map((i) => ({ name: `mlx5_${i}`, numaNode: i < 2 ? 0 : 1 })),
      pods: this.podsOf(n),
      rings: [4, 2]
        .filter((s) => n.letters.filter((l) => l === "f").length >= s)
        .map((s) => ({
          gpus: n.letters.flatMap((l, g) => (l === "f" ? [g] : [])).slice(0, s),
          class: machine.fabric,
          bandwidthGBps: machine.gbps,
          bestBandwidthGBps: machine.gbps,
        })),
      largest: null,
      supply: this.supply(),
      links: machine.links,
    };
  }

  private podsOf(n: Node): NodePod[] {
    const names = [...new Set(n.pods.filter((p) => p !== null))];
    return names.map((full) => {
      const [namespace = "", name = ""] = full.split("/");
      const gpus = n.pods.flatMap((p, g) => (p === full ? [g] : []));
      const gang = this.works.get(full)?.gang ?? "";
      const ring = { gpus, class: n.machine.fabric, bandwidthGBps: n.machine.gbps, bestBandwidthGBps: n.machine.gbps };
      return {
        namespace,
        name,
        uid: full,
        gpus,
        gang,
        ...(gpus.length > 1 ? { ring } : {}),
        ...(gang ? { unmovable: `it is a member of gang ${gang}` } : {}),
      };
    });
  }
}

function blank(namespace: string, name: string, gpus: number, since: number): WorkSum {
  return {
    namespace,
    name,
    uid: `${namespace}-${name}`,
    state: "pending",
    gpus,
    node: "",
    gpuIndices: [],
    gang: "",
    tenant: "",
    queue: "",
    linkClass: "",
    bandwidthGBps: 0,
    bestGBps: 0,
    quality: -1,
    since: new Date(since).toISOString(),
    reason: "",
  };
}

function ringOf(n: Node, size: number): Pick<WorkSum, "linkClass" | "bandwidthGBps" | "bestGBps" | "quality"> {
  if (size === 1) return { linkClass: "", bandwidthGBps: 0, bestGBps: 0, quality: -1 };
  const { gbps, fabric } = n.machine;
  return { linkClass: fabric, bandwidthGBps: gbps, bestGBps: n.machine.bestGBps, quality: gbps / n.machine.bestGBps };
}

/** A generator of numbers from 0 to 1 that gives the same for the same seed: a linear congruence. */
function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}
