// SPDX-License-Identifier: Apache-2.0

// A server of the API for Vite, with a made-up cluster: MOCK_NODES nodes, MOCK_RATE changes a
// second. GET /mock/burst?changes=N pushes so many changes as fast as viewers take them.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Connect, Plugin } from "vite";

import { bills, explanationOf, gangExplanationOf, historyOf, hours, hoursCSV, pools, usage } from "./answers";
import { MockCluster } from "./cluster";

// At most so often is something sent, in ms, as by the real server.
const pace = 500;

export function mock(): Plugin {
  let server: MockServer | undefined;
  const attach = (middlewares: Connect.Server) => {
    server ??= new MockServer(Number(process.env.MOCK_NODES ?? 64), Number(process.env.MOCK_RATE ?? 5));
    middlewares.use(server.handle);
  };
  return {
    name: "nvtopo-mock",
    configureServer: (s) => attach(s.middlewares),
    configurePreviewServer: (s) => attach(s.middlewares),
  };
}

class MockServer {
  private readonly cluster: MockCluster;
  private readonly viewers = new Set<ServerResponse>();
  private readonly sent: { version: number; text: string }[] = []; // the last of them

  constructor(nodes: number, rate: number) {
    this.cluster = new MockCluster(nodes);
    this.cluster.changedNodes.clear();
    this.cluster.changedWorks.clear();
    setInterval(() => {
      for (let i = 0; i < (rate * pace) / 1000; i++) this.cluster.step();
      this.send();
    }, pace).unref();
  }

  readonly handle = (req: IncomingMessage, res: ServerResponse, next: () => void) => {
    const url = new URL(req.url ?? "/", "http://mock");
    if (url.pathname === "/mock/burst") void this.burst(Number(url.searchParams.get("changes")), res);
    else if (url.pathname === "/api/v1/stream") this.stream(req, res);
    else if (url.pathname.startsWith("/api/v1/"))
      this.answer(url.pathname.slice("/api/v1/".length).split("/").map(decodeURIComponent), url.searchParams, res);
    else next();
  };

  private answer(path: string[], query: URLSearchParams, res: ServerResponse): void {
    if (query.get("format") === "csv") {
      res.setHeader("Content-Type", "text/csv; charset=utf-8");
      res.setHeader("Content-Disposition", 'attachment; filename="gpu-hours.csv"');
      res.end(hoursCSV(...timeOf(query), query.get("tenant") ?? ""));
      return;
    }
    const value = this.valueOf(path, query);
    res.setHeader("Content-Type", "application/json");
    res.statusCode = value === undefined ? 404 : 200;
    res.end(JSON.stringify(value ?? { error: `There is no ${path.join(" ")}.`, hint: "It may have been deleted; go back to the list." }));
  }

  private valueOf([kind, a = "", b = "", c = ""]: string[], query: URLSearchParams): unknown {
    switch (kind) {
      case "cluster":
        return this.cluster.cluster();
      case "nodes":
        return this.cluster.node(a);
      case "workloads":
        return this.cluster.workloads();
      case "explain":
        return explanationOf(this.cluster, b, c);
      case "history":
        return historyOf(this.cluster, a, b);
      case "gangs":
        return a ? this.gang(a, b) : { version: this.cluster.version, items: [...this.cluster.gangs.values()] };
      case "pools":
        return this.poolsAnswer(a, query);
      case "whoami":
        return { user: "mock", mode: "kubeconfig", version: "mock" };
      default:
        return undefined;
    }
  }

  private poolsAnswer(of: string, query: URLSearchParams): unknown {
    const tenant = query.get("tenant") ?? "";
    if (of === "bills") return { items: bills(new Date().toISOString(), tenant), problems: [] };
    if (of === "hours") return hours(...timeOf(query), tenant);
    return of === "usage" ? { items: usage(this.cluster), more: 0 } : { version: this.cluster.version, items: pools(this.cluster) };
  }

  private gang(namespace: string, name: string): unknown {
    const gang = this.cluster.gangs.get(`${namespace}/${name}`);
    return gang && { ...gang, explanation: gangExplanationOf(this.cluster, namespace, name) };
  }

  private stream(req: IncomingMessage, res: ServerResponse): void {
    res.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
    const last = Number(req.headers["last-event-id"]);
    // Goes on where the viewer was, if what followed is still kept.
    const kept = this.sent.some((s) => s.version === last);
    const version = kept ? last : this.cluster.version;
    res.write(event("hello", version, { version, moment: new Date().toISOString() }));
    for (const s of this.sent) if (kept && s.version > last) res.write(s.text);
    this.viewers.add(res);
    req.on("close", () => this.viewers.delete(res));
  }

  /** Sends what has changed since the last time; true if all viewers took it at once. */
  private send(): boolean {
    const { cluster } = this;
    const { version, changedNodes, changedWorks } = cluster;
    const items = [...changedWorks].map((key) => [key, cluster.works.get(key)] as const);
    const nodes = [...changedNodes].map((name) => cluster.sumOf(name));
    changedNodes.clear();
    changedWorks.clear();
    const moment = new Date().toISOString();
    const text =
      event("nodes", 0, { version, moment, supply: cluster.supply(), changed: nodes, removed: [] }) +
      event("workloads", version, {
        version,
        counts: cluster.counts(),
        changed: items.flatMap(([, w]) => w ?? []),
        removed: items.flatMap(([key, w]) => (w ? [] : [key])),
      });
    this.sent.push({ version, text });
    if (this.sent.length > 100) this.sent.shift();
    return [...this.viewers].map((v) => v.write(text)).every(Boolean);
  }

  /** Changes as if time ran fast: as many in an event as in one of the live stream at 50 changes/s. */
  private async burst(changes: number, res: ServerResponse): Promise<void> {
    const perEvent = 25;
    for (let i = 0; i < changes; i += perEvent) {
      for (let k = 0; k < perEvent; k++) this.cluster.step();
      if (!this.send()) await Promise.all([...this.viewers].map(drained));
      else if (i % 1000 === 0) await new Promise(setImmediate);
    }
    res.end(JSON.stringify({ version: this.cluster.version }));
  }
}

function drained(v: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    if (!v.writableNeedDrain) return resolve();
    const done = () => {
      v.off("drain", done).off("close", done);
      resolve();
    };
    v.on("drain", done).on("close", done);
  });
}

/** An event of the stream; of several of one version only the last has its number. */
function event(name: string, id: number, data: unknown): string {
  return `event: ${name}\n${id ? `id: ${id}\n` : ""}data: ${JSON.stringify(data)}\n\n`;
}

/** From when until when: a period of two times, so many days, or this month. */
function timeOf(query: URLSearchParams): [from: string, until: string] {
  const second = (ms: number) => `${new Date(ms).toISOString().slice(0, 19)}Z`;
  const [from, until] = (query.get("period") ?? "").split("/");
  if (from && until) return [second(Date.parse(from)), second(Date.parse(until))];
  const now = second(Date.now());
  const days = /^(\d+)d$/.exec(query.get("since") ?? "")?.[1];
  return [days ? second(Date.parse(now) - Number(days) * 24 * 60 * 60 * 1000) : `${now.slice(0, 7)}-01T00:00:00Z`, now];
}
