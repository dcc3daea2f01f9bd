// SPDX-License-Identifier: Apache-2.0
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import type { Cluster, NodeSum, Supply, Workloads } from "./api";
import { Store } from "./live";

const supply: Supply = { nodes: 0, gpus: 0, usedGPUs: 0, freeGPUs: 0, badGPUs: 0, slots: [] };
const counts = { pending: 0, running: 0, ended: 0, failing: 0 };

function node(used: number): NodeSum {
  return {
    name: "a",
    domains: [],
    model: "",
    gpus: 8,
    used,
    free: 8 - used,
    bad: 0,
    slots: {},
    capacity: {},
    states: "",
    closed: "",
    noGraph: "",
    note: "",
  };
}

/** A server whose stream the test writes, and whose cluster has one node. */
class Server {
  version = 1;
  used = 0;
  refuse = 0; // so many answers are errors
  status = 500;
  asked: string[] = []; // paths, and of streams the Last-Event-ID
  hold: Promise<void> | null = null; // answers wait for it
  stream: ReadableStreamDefaultController<Uint8Array> | null = null;
  atOnce = false; // a change follows the stream's first event
  resumes = false; // a stream goes on where the viewer was

  readonly fetch = async (url: string, init: RequestInit): Promise<Response> => {
    const path = url.replace("/api/v1/", "");
    const last = new Headers(init.headers).get("Last-Event-ID");
    this.asked.push(last === null ? path : `${path} ${last}`);
    if (path === "stream") return this.open(Number(last), init.signal ?? null);
    const body = path === "cluster" ? this.cluster() : this.workloads();
    if (this.hold) await this.hold;
    if (this.refuse > 0) {
      this.refuse--;
      return new Response(JSON.stringify({ error: "no", hint: "" }), { status: this.status });
    }
    return new Response(JSON.stringify(body), { status: 200 });
  };

  private open(last: number, signal: AbortSignal | null): Response {
    const version = this.resumes ? last : this.version;
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.stream = controller;
        signal?.addEventListener("abort", () => controller.error(new Error("aborted")));
      },
    });
    this.write("hello", version, { version });
    if (this.atOnce) this.write("gangs", ++this.version, { version: this.version });
    return new Response(body, { status: 200 });
  }

  write(event: string, id: number, data: unknown): void {
    this.stream?.enqueue(new TextEncoder().encode(`event: ${event}\n${id ? `id: ${id}\n` : ""}data: ${JSON.stringify(data)}\n\n`));
  }

  /** The node has other numbers, and the stream says so. */
  change(used: number): void {
    this.version++;
    this.used = used;
    this.write("nodes", this.version, { version: this.version, moment: "", supply, changed: [node(used)], removed: [] });
  }

  private cluster(): Cluster {
    const features = { pools: false, gangs: false };
    return { version: this.version, moment: "", resource: "", levels: [], supply, nodes: [node(this.used)], problems: [], features };
  }

  private workloads(): Workloads {
    return { version: this.version, moment: "", counts, items: [] };
  }
}

describe("the live cluster", () => {
  let server: Server;
  let store: Store;
  const used = () => store.current().cluster?.nodes[0]?.used;
  const until = (what: () => unknown) => vi.waitFor(() => expect(what()).toBeTruthy(), { timeout: 5_000, interval: 5 });

  beforeEach(() => {
    server = new Server();
    vi.stubGlobal("fetch", server.fetch);
    vi.stubGlobal("sessionStorage", { getItem: () => null });
    vi.stubGlobal("requestAnimationFrame", (f: () => void) => setTimeout(f));
    vi.spyOn(Math, "random").mockReturnValue(-0.98); // pauses are short
    store = new Store();
  });
  afterEach(() => {
    store.close();
    vi.unstubAllGlobals();
    vi.restoreAllMocks();
  });

  it("is fetched once, and then changed by the stream", async () => {
    server.resumes = true;
    store.connect();
    await until(() => store.current().state === "live");
    server.change(3);
    await until(() => used() === 3);
    expect(server.asked).toEqual(["cluster", "workloads", "stream 1"]);
  });

  it("goes on where it was after the stream broke", async () => {
    server.resumes = true;
    store.connect();
    await until(() => store.current().state === "live");
    server.change(3);
    await until(() => used() === 3);
    server.stream?.close();
    await until(() => server.asked.length === 4);
    expect(server.asked.at(-1)).toBe("stream 2");
  });

  it("is fetched anew where the stream cannot go on, and what comes meanwhile is not lost", async () => {
    store.connect();
    await until(() => store.current().state === "live" && used() === 0);
    server.stream?.close();
    server.version += 10;
    server.used = 1;
    let release = () => {};
    server.hold = new Promise((resolve) => (release = resolve));
    await until(() => server.asked.filter((p) => p === "cluster").length >= 2);
    server.change(5); // newer than the answers, which are on their way
    release();
    await until(() => used() === 5);
  });

  it("asks again if it could not be fetched, even if changes came in between", async () => {
    store.connect();
    await until(() => used() === 0);
    server.stream?.close();
    server.version += 10;
    server.used = 4; // no event says so
    server.atOnce = true;
    server.refuse = 2;
    await until(() => used() === 4);
    expect(server.asked.filter((p) => p === "cluster").length).toBeGreaterThan(2);
  });

  it("is not asked for again where no token is accepted", async () => {
    server.refuse = 2;
    server.status = 401;
    store.connect();
    await until(() => store.current().state === "unauthorised");
    const asked = server.asked.length;
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(server.asked.length).toBe(asked);
  });

  it("stops when it is closed, also while it asks", async () => {
    let release = () => {};
    server.hold = new Promise((resolve) => (release = resolve));
    store.connect();
    await until(() => server.asked.length === 2);
    store.close();
    release();
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(server.asked).toEqual(["cluster", "workloads"]);
  });
});
