// SPDX-License-Identifier: Apache-2.0

// What the mock says of single pods and of pools.

import type { Bill, Decision, Explanation, History, Pool, PoolHours, UsageRecord, WorkSum } from "../src/api";
import type { MockCluster } from "./cluster";

export function explanationOf(c: MockCluster, namespace: string, name: string): Explanation | undefined {
  const w = c.works.get(`${namespace}/${name}`);
  if (!w) return undefined;
  return w.state === "pending" ? whyPending(c, w) : whyThere(c, w);
}

function nameAt(c: MockCluster, i: number): string {
  return c.nodes[i % c.nodes.length]?.name ?? "";
}

/** Of a gang: that of its first member, said of all. */
export function gangExplanationOf(c: MockCluster, namespace: string, name: string): Explanation | undefined {
  const gang = c.gangs.get(`${namespace}/${name}`);
  const first = explanationOf(c, namespace, `${name}-0`);
  if (!gang || !first) return undefined;
  const about = { ...first, kind: "PodGroup", name };
  if (gang.placed === 0) return about;
  return {
    ...about,
    choice: undefined,
    reason: `${gang.placed} of ${gang.have} members have a node`,
    evidence: [`all are within one ${gang.level}`],
  };
}

function whyThere(c: MockCluster, w: WorkSum): Explanation {
  const set = { ring: w.gpuIndices, linkClass: w.linkClass, bandwidthGBps: w.bandwidthGBps, bestGBps: w.bestGBps, band: 0, numaNodes: [0] };
  const compared: Decision["c"] = [
    { n: w.node, r: 450_000_000, t: [1000, 1000, 250], s: 7750 },
    { n: nameAt(c, 2), r: 450_000_000, t: [1000, 1000, 0], s: 7000 },
  ];
  return {
    kind: "Pod",
    namespace: w.namespace,
    name: w.name,
    state: w.state === "ended" ? "Ended" : "Bound",
    reason: `the pod is on node ${w.node}`,
    evidence: ["the scheduler would choose no better set now"],
    choice: {
      node: w.node,
      set,
      best: set,
      bestNode: w.node,
      decision: {
        node: w.node,
        at: w.since,
        gang: w.gang !== "",
        band: 0,
        best: 450_000_000,
        c: w.gang ? [] : compared,
        of: 12,
        no: { StaleGraph: 1, FewGPUs: 40 },
      },
    },
    ...(w.gang ? { gang: { name: w.gang, minimum: 8, have: 8, placed: 8, level: "spine" } } : {}),
  };
}

function whyPending(c: MockCluster, w: WorkSum): Explanation {
  const inTheWay = [...c.works.values()].filter((x) => x.name.startsWith("web-"));
  const first = inTheWay[0] ?? w;
  const ring = Array.from({ length: w.gpus }, (_, g) => g);
  const gets = { ring, linkClass: "NV18", bandwidthGBps: 450, bestGBps: 450, band: 0 };
  const worse = { ring, linkClass: "NV1", bandwidthGBps: 25, bestGBps: 50, band: 2 };
  const taint = "a taint that the pod does not tolerate";
  const blocked = inTheWay.map((x, i) => ({
    node: x.node,
    free: w.gpus - 1,
    obstacles: [{ cause: "FewLinked", text: "fewer free GPUs joined by NVLink than asked" }],
    blockers: [
      {
        pod: `${x.namespace}/${x.name}`,
        priority: 0,
        gpus: x.gpuIndices,
        ...(i === 1 ? { stays: "no controller would make it again" } : { movesTo: nameAt(c, 9) }),
      },
    ],
    exact: true,
    gets,
  }));
  return {
    kind: "Pod",
    namespace: w.namespace,
    name: w.name,
    state: "Pending",
    cause: w.gang ? "NoDomain" : "FewLinked",
    reason: `${first.node}: ${w.reason}`,
    evidence: [
      `${first.node}: asks ${w.gpus}, ${w.gpus - 1} free`,
      `${first.node} would give it GPUs ${ring.join(",")}, NV18, 450 GB/s of 450 if ${first.namespace}/${first.name} went`,
    ],
    next: `ask for a lesser nvtopo.dev/min-link, wait for the pods that are named, or move ${first.namespace}/${first.name} off ${first.node} (kubectl cordon ${first.node}; kubectl -n ${first.namespace} delete pod ${first.name}; and once its replacement has a node: kubectl uncordon ${first.node})`,
    scheduler: `0/${c.nodes.length} nodes are available: ${c.nodes.length - 3} fewer free GPUs than asked, 3 ${taint}.`,
    refusals: [
      { cause: "FewGPUs", text: "fewer free GPUs than asked", nodes: c.nodes.length - 3, named: [0, 1, 2].map((i) => nameAt(c, i)) },
      { cause: "Tainted", text: taint, nodes: 3, named: [nameAt(c, 4)] },
    ],
    candidates: [
      ...blocked,
      { node: nameAt(c, 4), free: 4, obstacles: [{ cause: "Tainted", text: taint, detail: "team=vision:NoSchedule" }], exact: false, gets },
    ],
    relaxations: [
      { wish: "nvtopo.dev/min-link: NV18", nodes: 3, node: nameAt(c, 6), gets: worse },
      { wish: `1 of the ${w.gpus} nvidia.com/gpu`, nodes: 9, node: nameAt(c, 0), gets },
    ],
    ...(w.gang ? { gang: { name: w.gang, minimum: 4, have: 4, placed: 0, level: "rack", required: "rack", room: 1 } } : {}),
  };
}

export function historyOf(c: MockCluster, namespace: string, name: string): History | undefined {
  const w = c.works.get(`${namespace}/${name}`);
  if (!w) return undefined;
  const entries: History["entries"] = [{ at: w.since, source: "pod", reason: "Created", text: `asks for ${w.gpus} nvidia.com/gpu` }];
  if (w.reason) entries.push({ at: w.since, source: "condition", reason: "Unschedulable", text: w.reason });
  if (w.node) {
    entries.push(
      { at: w.since, source: "event", reason: "GPUsChosen", text: `GPUs ${w.gpuIndices.join(",")} of ${w.node}` },
      {
        at: w.since,
        source: "decision",
        reason: "Decided",
        text: "of 12 nodes that were compared",
        data: { node: w.node, band: 0, of: 12, no: { StaleGraph: 1 } },
      },
      {
        at: w.since,
        source: "record",
        reason: "Recorded",
        text: `kubelet gave GPUs ${w.gpuIndices.join(",")}`,
        data: { devices: w.gpuIndices.map((g) => `GPU-${w.node}-${g}`) },
      },
    );
  }
  return { pod: `${namespace}/${name}`, entries, problems: [] };
}

export function pools(c: MockCluster): Pool[] {
  const total = c.nodes.reduce((t, n) => t + n.machine.gpus, 0);
  const used = Math.round(total / 2);
  const share = (tenant: string, queue: string, guaranteed: number, limit: number, usedBy: number, pending: number) => ({
    ...(tenant ? { tenant } : {}),
    ...(queue ? { queue } : {}),
    guaranteed,
    pinned: 0,
    limit,
    used: usedBy,
    borrowed: Math.max(0, usedBy - guaranteed),
    pending,
  });
  const part = Math.round(total / 4);
  return [
    {
      metadata: { name: "training-pool" },
      spec: { poolType: "Training" },
      status: {
        phase: "Degraded",
        totalCapacity: total,
        reservedCapacity: Math.round(total / 10),
        allocatedCapacity: used,
        availableCapacity: total - used - Math.round(total / 10),
        nodes: c.nodes.length,
        readyNodes: c.nodes.length - 2,
        states: { available: total - used, allocated: used, reserved: Math.round(total / 10), maintenance: 8, failed: 5 },
        shares: [
          share("team-a", "", part, part * 3, part + 20, 2),
          share("team-b", "", part, part * 2, Math.round(part / 2), 0),
          share("research", "", Math.round(part / 2), part * 2, 0, 4),
          share("", "batch", part * 2, part * 4, part + 20, 2),
        ],
        conditions: [
          { type: "Ready", status: "True", reason: "Applied", message: "" },
          {
            type: "CapacityMismatch",
            status: "True",
            reason: "NodesHaveFewer",
            message: `The nodes have ${total - 5} devices, capacity.total is ${total}.`,
          },
        ],
      },
    },
  ];
}

/** The bill of a tenant, or the amounts of all without lines. */
export function bills(asOf: string, tenant: string): Bill[] {
  const all: Bill[] = [
    {
      tenant: "team-a",
      currency: "USD",
      asOf,
      lines: [
        {
          resource: "nvidia.com/gpu",
          model: "NVIDIA-H100-80GB-HBM3",
          unitPrice: "2",
          sessions: 12,
          open: 3,
          cost: "180.00",
          accrued: "48.00",
        },
        {
          resource: "nvidia.com/gpu",
          model: "Tesla-V100-SXM2-32GB",
          unitPrice: "0",
          sessions: 2,
          open: 0,
          cost: "0.00",
          accrued: "0.00",
          noPrice: true,
        },
      ],
      balance: "820.00",
      billed: "180.00",
      accrued: "48.00",
    },
    {
      tenant: "team-b",
      currency: "USD",
      asOf,
      lines: [{ resource: "nvidia.com/gpu", model: "NVIDIA-L40S", unitPrice: "1", sessions: 40, open: 1, cost: "36.50", accrued: "1.25" }],
      balance: "-12.00",
      billed: "36.50",
      accrued: "1.25",
      wrong: ["record r-17: the quantity is not a number"],
    },
  ];
  if (tenant) return all.filter((b) => b.tenant === tenant);
  return all.map((b) => ({ ...b, lines: [], wrong: undefined }));
}

export function usage(c: MockCluster): UsageRecord[] {
  return [...c.works.values()]
    .filter((w) => w.node)
    .slice(0, 60)
    .map((w, i) => ({
      metadata: { name: w.uid, namespace: w.namespace },
      spec: {
        tenant: w.tenant || "research",
        namespace: w.namespace,
        pool: "training-pool",
        pod: w.name,
        node: w.node,
        resource: "nvidia.com/gpu",
        model: "NVIDIA-H100-80GB-HBM3",
        quantity: String(w.gpus),
        start: w.since,
      },
      status: i % 3 === 0 ? { end: w.since, estimated: i % 6 === 0, cost: "3.20" } : {},
    }));
}

/** The GPU hours of the made-up cluster, whatever the time: most first, as the server has them. */
const hoursItems = [
  { tenant: "team-a", queue: "training-pool", source: "sessions", hours: 1034.5, sessions: 36 },
  { tenant: "team-b", queue: "training-pool", source: "sessions", hours: 321.25, sessions: 12 },
  { tenant: "team-a", queue: "", source: "invoice", hours: 200, sessions: 4 },
  { tenant: "research", queue: "", source: "sessions", hours: 0, sessions: 0 }, // one that used nothing is listed too
].map((i) => ({ ...i, model: "NVIDIA-H100-80GB-HBM3" }));

type HoursItem = (typeof hoursItems)[number];

function hoursItemsOf(tenant: string): HoursItem[] {
  return hoursItems.filter((i) => !tenant || i.tenant === tenant);
}

/** GPU hours of a time, of all tenants or of one. */
export function hours(from: string, until: string, tenant: string): PoolHours {
  const items = hoursItemsOf(tenant);
  const invoiced = items.filter((i) => i.source === "invoice");
  const sum = (of: HoursItem[], what: "hours" | "sessions") => of.reduce((n, i) => n + i[what], 0);
  const by = (name: (i: HoursItem) => string, of: HoursItem[]) =>
    [...new Set(of.map(name))].map((n) => {
      const its = (all: HoursItem[]) => all.filter((i) => name(i) === n);
      return {
        name: n,
        hours: String(sum(its(of), "hours")),
        invoiced: String(sum(its(invoiced), "hours")),
        sessions: sum(its(of), "sessions"),
      };
    });
  const held = items.filter((i) => i.sessions > 0);
  return {
    from,
    until,
    ...(tenant ? { tenant } : {}),
    hours: String(sum(items, "hours")),
    sessions: sum(items, "sessions"),
    byTenant: by((i) => i.tenant, items),
    byQueue: by((i) => i.queue, held),
    byModel: by((i) => i.model, held),
    notes: invoiced.map((i) => `${i.hours} of the hours are from the invoices of last year, whose sessions are kept no more.`),
  };
}

/** The same as a file, as the server writes it. */
export function hoursCSV(from: string, until: string, tenant: string): string {
  const rows = hoursItemsOf(tenant).map((i) => {
    const [queue, model] = i.sessions > 0 ? [i.queue || "not recorded", i.model] : ["", ""];
    return [from, until, i.tenant, queue, model, i.source, i.hours, i.sessions];
  });
  return [["from", "until", "tenant", "queue", "model", "source", "hours", "sessions"], ...rows].map((r) => `${r.join(",")}\n`).join("");
}
