// SPDX-License-Identifier: Apache-2.0

// The cluster as the pages show it, kept up to date by the stream. Pages are told at most once
// in a frame of the screen.

import { useSyncExternalStore } from "react";

import type { Cluster, Workloads } from "./api";
import { APIError, get, request } from "./api";
import type { NodesEvent, WorkloadsEvent } from "./deltas";
import { addNodes, addWorkloads, applyNodes, applyWorkloads, noneWaiting } from "./deltas";
import type { ServerEvent } from "./sse";
import { readEvents } from "./sse";

export interface Live {
  state: "connecting" | "live" | "retrying" | "unauthorised";
  error: APIError | null; // why it is not live
  cluster: Cluster | null;
  workloads: Workloads | null;
  gangs: number; // version of the gangs, and of the pools: pages fetch them when it changes
  pools: number;
}

// The server sends a comment every 15 s; after this many ms without anything the connection is
// taken to be lost.
const silence = 40_000;
const firstRetry = 1_000;
const lastRetry = 30_000;

/** Follows one server. Only one connection is read at a time, and its events one after the other. */
export class Store {
  private live: Live = { state: "connecting", error: null, cluster: null, workloads: null, gangs: 0, pools: 0 };
  private readonly listeners = new Set<() => void>();
  private waiting = noneWaiting();
  private scheduled = false;
  private version = 0; // where the stream is to go on; 0: what is shown must be fetched first
  private run: AbortController | null = null;

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  readonly current = () => this.live;

  /** Connects anew, at once: when the page is seen, after a token was given, or because somebody asked. */
  readonly connect = () => {
    this.run?.abort();
    this.run = new AbortController();
    void this.keepConnected(this.run.signal);
  };

  readonly close = () => this.run?.abort();

  private async keepConnected(signal: AbortSignal): Promise<void> {
    let wait = firstRetry;
    while (!signal.aborted) {
      try {
        await this.follow(signal, () => (wait = firstRetry));
        if (signal.aborted) return;
        this.set({ state: "retrying" });
      } catch (e) {
        if (signal.aborted) return;
        const error = e instanceof APIError ? e : new APIError(0, "The connection was lost.", "The page tries again by itself.");
        if (error.status === 401) {
          this.set({ state: "unauthorised", error });
          return;
        }
        this.set({ state: "retrying", error });
      }
      await pause(wait * (0.5 + Math.random() / 2), signal);
      wait = Math.min(2 * wait, lastRetry);
    }
  }

  /** Reads the cluster if it must, and then the stream until it ends. */
  private async follow(signal: AbortSignal, onLive: () => void): Promise<void> {
    if (this.version === 0) await this.fetchAll(signal);
    const connection = new AbortController();
    const abort = () => connection.abort();
    signal.addEventListener("abort", abort);
    let timer = setTimeout(abort, silence);
    try {
      const response = await request("stream", { signal: connection.signal, headers: { "Last-Event-ID": String(this.version) } });
      if (!response.body) throw new APIError(0, "The stream has no body.", "Look at the log of nvtopo ui.");
      this.set({ state: "live", error: null });
      onLive();
      await readEvents(
        response.body,
        (e) => this.take(e, connection.signal),
        () => {
          clearTimeout(timer);
          timer = setTimeout(abort, silence);
        },
      );
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", abort);
      connection.abort();
    }
  }

  private async fetchAll(signal: AbortSignal): Promise<void> {
    this.version = 0; // until the answers are there: if they do not come, the next connection asks again
    const [cluster, workloads] = await Promise.all([get<Cluster>("cluster", signal), get<Workloads>("workloads", signal)]);
    signal.throwIfAborted();
    this.waiting = noneWaiting(); // older than the answers
    this.version = Math.min(cluster.version, workloads.version);
    this.set({ cluster, workloads, gangs: this.live.gangs + 1, pools: this.live.pools + 1 });
  }

  private async take(e: ServerEvent, signal: AbortSignal): Promise<void> {
    const data = JSON.parse(e.data) as { version?: number };
    switch (e.event) {
      case "hello":
        // Another version than asked for: what lies between is not sent. What follows waits.
        if (data.version !== this.version) await this.fetchAll(signal);
        return;
      case "nodes":
        addNodes(this.waiting, data as NodesEvent);
        break;
      case "workloads":
        addWorkloads(this.waiting, data as WorkloadsEvent);
        break;
      case "gangs":
        this.set({ gangs: this.live.gangs + 1 });
        break;
      case "pools":
        this.set({ pools: this.live.pools + 1 });
        break;
    }
    // Of the events of one version only the last has its number.
    if (e.id) this.version = Number(e.id);
    this.schedule();
  }

  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      const { cluster, workloads } = this.live;
      if (!cluster || !workloads) return;
      const waiting = this.waiting;
      this.waiting = noneWaiting();
      this.set({ cluster: applyNodes(cluster, waiting), workloads: applyWorkloads(workloads, waiting) });
    });
  }

  private set(change: Partial<Live>): void {
    this.live = { ...this.live, ...change };
    this.listeners.forEach((listener) => listener());
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

export const store = new Store();

/** A part of the state; the component is rendered when that part is another object. */
export function useLive<T>(part: (live: Live) => T): T {
  return useSyncExternalStore(store.subscribe, () => part(store.current()));
}
