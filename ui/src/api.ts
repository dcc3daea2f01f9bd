// SPDX-License-Identifier: Apache-2.0

// What the server answers. Go's types are named beside those that mirror them; lists that Go
// leaves out when they are empty are optional.

export type Letter = "f" | "u" | "d" | "m" | "x"; // free, used, degraded, MIG, unhealthy

export interface Linked {
  class: string;
  freeGPUs: number;
  free: number;
  capacity: number;
  ideal: number;
  fragmentation: number;
}

export interface Slots {
  gpus: number;
  free: number;
  capacity: number;
  linked?: Linked[];
}

/** clusterview.Supply */
export interface Supply {
  nodes: number;
  gpus: number;
  usedGPUs: number;
  freeGPUs: number;
  badGPUs: number;
  slots: Slots[];
}

/** One node on the map. */
export interface NodeSum {
  name: string;
  domains: string[];
  model: string;
  gpus: number;
  used: number;
  free: number;
  bad: number;
  slots: Record<string, number>; // how many pods of so many GPUs fit
  capacity: Record<string, number>; // the same on the empty node
  states: string; // a Letter for each GPU
  closed: string;
  noGraph: string;
  note: string;
}

export interface Cluster {
  version: number;
  moment: string;
  resource: string;
  levels: string[];
  supply: Supply;
  nodes: NodeSum[];
  problems: string[];
  features: { pools: boolean; gangs: boolean };
}

/** clusterview.Ring */
export interface Ring {
  gpus: number[];
  class: string;
  bandwidthGBps: number;
  bestBandwidthGBps: number;
}

/** clusterview.GPU */
export interface GPU {
  index: number;
  uuid: string;
  pciBusID?: string;
  model?: string;
  memoryBytes?: number;
  numaNode: number;
  cpus?: string;
  state: "unhealthy" | "mig" | "used" | "degraded" | "free";
  reason?: string;
  pods?: string[];
}

/** clusterview.Pod */
export interface NodePod {
  namespace: string;
  name: string;
  uid: string;
  gpus: number[];
  lost?: string;
  absentGPUs?: number;
  counted?: number;
  gone?: boolean;
  gang?: string;
  ring?: Ring;
  unmovable?: string;
}

/** clusterview.Node and the links of its GPUs. */
export interface NodeDetail {
  name: string;
  domains?: string[];
  closed?: string;
  noGraph?: string;
  model?: string;
  gpus?: GPU[];
  countedGPUs?: number;
  note?: string;
  refuses?: string;
  numaNodes?: { id: number; cpus?: string; memoryBytes?: number }[];
  nics?: { name: string; numaNode: number }[];
  pods?: NodePod[];
  rings?: Ring[];
  largest?: Ring | null;
  supply: Supply;
  links: Links;
}

export interface Links {
  classes: string[][];
  bandwidthGBps: number[][];
}

export type WorkState = "pending" | "running" | "ended" | "failing";

/** A pod that asks for GPUs. */
export interface WorkSum {
  namespace: string;
  name: string;
  uid: string;
  state: WorkState;
  gpus: number;
  node: string;
  gpuIndices: number[];
  gang: string;
  tenant: string;
  queue: string;
  linkClass: string;
  bandwidthGBps: number;
  bestGBps: number;
  quality: number; // bandwidth over best; -1: not known
  since: string;
  reason: string;
}

export type Counts = Record<WorkState, number>;

export interface Workloads {
  version: number;
  moment: string;
  counts: Counts;
  items: WorkSum[];
}

/** explain.Set */
export interface GPUSet {
  ring: number[];
  linkClass?: string;
  bandwidthGBps?: number;
  bestGBps?: number;
  band: number;
  numaNodes?: number[];
}

/** explain.Blocker */
export interface Blocker {
  pod: string;
  priority: number;
  gpus?: number[];
  lost?: string;
  movesTo?: string;
  stays?: string;
}

/** allocation.Decision */
export interface Decision {
  node: string;
  at: string;
  gang?: boolean;
  band: number;
  best?: number; // kB/s
  c?: { n: string; r?: number; t?: [number, number, number]; s?: number }[];
  of?: number;
  no?: Record<string, number>;
  ms?: number; // of an all-reduce on the chosen set
  left?: Left;
}

/** allocation.Left: the faster node that was left to larger pods */
export interface Left {
  n: string;
  m?: string;
  ms: number;
  of: number;
}

/** explain.Explanation */
export interface Explanation {
  kind: string;
  namespace: string;
  name: string;
  state: "Pending" | "Bound" | "Ended";
  cause?: string;
  reason?: string;
  evidence?: string[];
  next?: string;
  scheduler?: string;
  ignoredKeys?: string;
  refusals?: { cause: string; text: string; nodes: number; named?: string[] }[];
  candidates?: {
    node: string;
    free: number;
    obstacles?: { cause: string; text: string; detail?: string }[];
    blockers?: Blocker[];
    exact: boolean;
    gets?: GPUSet;
  }[];
  relaxations?: { wish: string; nodes: number; node?: string; gets?: GPUSet; level?: string }[];
  gang?: {
    name: string;
    minimum: number;
    have: number;
    placed: number;
    level?: string;
    required?: string;
    room?: number;
  };
  choice?: {
    node: string;
    set?: GPUSet;
    at?: string;
    decision?: Decision;
    best?: GPUSet;
    bestNode?: string;
    compared?: number;
    notCompared?: { cause: string; text: string; nodes: number; named?: string[] }[];
    profile?: string;
    assumed?: boolean;
    left?: Left;
  };
}

export interface GangSum {
  namespace: string;
  name: string;
  state: string;
  minimum: number;
  have: number;
  placed: number;
  level: string;
  domains: string[];
  crossings: Record<string, number>;
  estimateMillis: number;
  exact: boolean;
  source: string; // what makes the pods a gang
  reason: string; // why it cannot be placed, as far as its objects say
}

export interface Member {
  rank: number;
  pod: string;
  node: string;
  domains: string[];
  gpus: number[];
  state: string;
}

/** gangrequest.Placement */
export interface Placement {
  level: string;
  domains?: Record<string, string[]>;
  fewest?: Record<string, number>;
  quality?: string;
  estimateMs?: Record<string, number | string>;
  messageBytes?: number;
  crossings?: number;
  exact?: boolean;
  model?: string;
  chosen?: string; // in a few words
  others?: string[]; // the best plan on each other model, likewise
}

export interface GangDetail extends GangSum {
  levels: string[]; // that the members' domains are of
  members: Member[];
  warnings: string[];
  placement: Placement | null;
  explanation: Explanation | null;
}

export interface Share {
  tenant?: string;
  queue?: string;
  guaranteed: number;
  pinned: number;
  limit: number;
  used: number;
  borrowed: number;
  pending: number;
}

/** ComputePool, as `nvtopo pool top -o json` prints it */
export interface Pool {
  metadata: { name: string };
  spec: { poolType?: string };
  status: {
    phase?: string;
    totalCapacity: number;
    reservedCapacity: number;
    allocatedCapacity: number;
    availableCapacity: number;
    nodes: number;
    readyNodes: number;
    states?: Record<"available" | "allocated" | "reserved" | "maintenance" | "failed", number>;
    shares?: Share[];
    conditions?: { type: string; status: string; reason?: string; message?: string }[];
  };
}

export interface Bill {
  tenant: string;
  currency: string;
  asOf?: string; // absent: never billed
  lines: {
    resource: string;
    model?: string;
    unitPrice: string;
    sessions: number;
    open: number;
    cost: string;
    accrued: string;
    noPrice?: boolean;
  }[];
  balance: string;
  billed: string;
  accrued: string;
  wrong?: string[];
  noPrices?: string;
}

export interface UsageRecord {
  metadata: { name: string; namespace: string };
  spec: {
    tenant: string;
    namespace?: string; // of the pod; records of before it are in it
    pool: string;
    pod: string;
    node: string;
    resource: string;
    model?: string;
    quantity: string;
    start: string;
  };
  status?: { end?: string; estimated?: boolean; cost?: string };
}

/** accounting.HoursOf */
export interface HoursOf {
  name: string; // empty: not recorded
  hours: string;
  invoiced: string; // what of hours is from invoices
  sessions: number;
}

/** accounting.GPUHours */
export interface PoolHours {
  from: string;
  until: string;
  tenant?: string;
  hours: string;
  sessions: number;
  byTenant: HoursOf[];
  byQueue: HoursOf[];
  byModel: HoursOf[];
  notes: string[];
}

export interface History {
  pod: string;
  entries: {
    at: string;
    source: "event" | "condition" | "decision" | "record" | "pod";
    reason: string;
    text: string;
    count?: number; // of a series of events
    data?: Record<string, unknown> | null;
  }[];
  problems: string[]; // what could not be read
}

export interface Bills {
  items: Bill[];
  problems: string[];
}

export interface Usage {
  items: UsageRecord[];
  more: number; // that are not in items
}

/** Why a request had no answer, and what to do about it. Status 0: the server was not reached. */
export class APIError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly hint: string,
  ) {
    super(message);
  }
}

const tokenKey = "nvtopo-token";

/** Keeps the token for as long as the browser's tab is open. */
export function setToken(token: string): void {
  if (token) sessionStorage.setItem(tokenKey, token);
  else sessionStorage.removeItem(tokenKey);
}

export function hasToken(): boolean {
  return sessionStorage.getItem(tokenKey) !== null;
}

/** Asks the server. What is not an answer with status 200 is an APIError. */
export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  const token = sessionStorage.getItem(tokenKey);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  let response: Response;
  try {
    response = await fetch(`/api/v1/${path}`, { ...init, headers });
  } catch (e) {
    if (init.signal?.aborted) throw e;
    throw new APIError(0, "The server cannot be reached.", "Is nvtopo ui still running? The page tries again by itself.");
  }
  if (response.status !== 200) throw await errorOf(response);
  return response;
}

async function errorOf(response: Response): Promise<APIError> {
  const text = await response.text();
  try {
    const body = JSON.parse(text) as { error?: string; hint?: string };
    return new APIError(response.status, body.error ?? `The server answered ${response.status}.`, body.hint ?? "");
  } catch {
    return new APIError(response.status, `The server answered ${response.status}.`, "Look at the log of nvtopo ui.");
  }
}

// How often a document is asked for at most, by the status of what came in place of it: the server
// has too much to do for this user, or for all, or has not yet read the cluster. It is asked at
// intervals of this many ms and, at random, up to twice as many.
const tries: Record<number, number> = { 429: 8, 503: 4 };
const interval = 1_000;

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  for (let asked = 1; ; asked++) {
    try {
      return (await (await request(path, { signal: signal ?? null })).json()) as T;
    } catch (e) {
      if (!(e instanceof APIError) || asked >= (tries[e.status] ?? 1)) throw e;
    }
    await new Promise((resolve) => setTimeout(resolve, interval * (1 + Math.random())));
    signal?.throwIfAborted();
  }
}

/** Path of an object that has a namespace; name is namespace/name. */
export function objectPath(prefix: string, name: string): string {
  return [prefix, ...name.split("/").map(encodeURIComponent)].join("/");
}

export function fullName(o: { namespace: string; name: string }): string {
  return `${o.namespace}/${o.name}`;
}

/** namespace/name of the pod whose session a record is. */
export function podOf(r: UsageRecord): string {
  return fullName({ namespace: r.spec.namespace || r.metadata.namespace, name: r.spec.pod });
}
