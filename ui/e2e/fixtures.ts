// SPDX-License-Identifier: Apache-2.0

// What the tests look at, found by the API, so that they run on any cluster that has it.

import fs from "node:fs";
import { createRequire } from "node:module";
import type { APIRequestContext, Page } from "@playwright/test";
import { expect, test as base } from "@playwright/test";
import type axe from "axe-core";

import type { Cluster, Explanation, GangSum, WorkSum, Workloads } from "../src/api";

const token = process.env.NVTOPO_UI_TOKEN;

export interface Subjects {
  cluster: Cluster;
  node: string; // with GPUs, and pods on them
  pending: WorkSum; // its explanation names a pod in the way
  blocker: string; // namespace/name of that pod
  running: WorkSum;
  gang: GangSum; // with members that have nodes
}

async function get<T>(request: APIRequestContext, path: string): Promise<T> {
  const response = await request.get(`/api/v1/${path}`, token ? { headers: { Authorization: `Bearer ${token}` } } : {});
  expect(response.status(), path).toBe(200);
  return response.json() as Promise<T>;
}

function found<T>(value: T | undefined, what: string): T {
  if (value === undefined) throw new Error(`the cluster has no ${what}`);
  return value;
}

async function subjectsOf(request: APIRequestContext): Promise<Subjects> {
  const cluster = await get<Cluster>(request, "cluster");
  const { items } = await get<Workloads>(request, "workloads");
  let pending: WorkSum | undefined;
  let blocker: string | undefined;
  for (const w of items.filter((i) => i.state === "pending")) {
    const e = await get<Explanation>(request, `explain/pod/${w.namespace}/${w.name}`);
    blocker = e.candidates?.flatMap((c) => c.blockers ?? [])[0]?.pod;
    pending = w;
    if (blocker) break;
  }
  const gangs = (await get<{ items: GangSum[] }>(request, "gangs")).items;
  return {
    cluster,
    node: found(
      cluster.nodes.find((n) => n.used > 1 && n.gpus > 2 && !n.noGraph),
      "node whose GPUs are used",
    ).name,
    pending: found(pending, "pending pod"),
    blocker: found(blocker, "pending pod with a pod in the way"),
    running: found(
      items.find((w) => w.state === "running" && w.gang !== ""),
      "running member of a gang",
    ),
    gang: found(
      gangs.find((g) => g.placed > 0),
      "gang that is placed",
    ),
  };
}

/**
 * Tests get `subjects`, and fail for each error in the page's console, a violation of the CSP for
 * one; where they are `failing`, not for answers that are errors.
 */
export const test = base.extend<{ failing: boolean; console: undefined }, { subjects: Subjects }>({
  subjects: [
    async ({ playwright }, use, info) => {
      const { baseURL = "", ignoreHTTPSErrors = false } = info.project.use;
      const request = await playwright.request.newContext({ baseURL, ignoreHTTPSErrors });
      await use(await subjectsOf(request));
      await request.dispose();
    },
    { scope: "worker" },
  ],
  failing: [false, { option: true }],
  console: [
    async ({ page, failing }, use) => {
      const errors: string[] = [];
      page.on("console", (m) => {
        if (m.type() === "error" && !(failing && m.text().startsWith("Failed to load resource"))) errors.push(m.text());
      });
      page.on("pageerror", (e) => errors.push(e.message));
      await use(undefined);
      expect(errors, "errors in the console").toEqual([]);
    },
    { auto: true },
  ],
  page: async ({ page }, use) => {
    if (token) await page.addInitScript((t) => sessionStorage.setItem("nvtopo-token", t), token);
    await use(page);
  },
});

/** Opens a page of the app, and waits until it is live and has what it shows. */
export async function open(page: Page, path: string): Promise<void> {
  await page.goto(path);
  await settled(page);
}

export async function settled(page: Page): Promise<void> {
  await expect(page.locator("html")).toHaveAttribute("data-connection", "live");
  await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
  await expect(page.locator("[aria-busy=true]")).toHaveCount(0);
}

const axeSource = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What axe finds on the page as it is now. */
export async function findings(page: Page): Promise<string[]> {
  await page.evaluate(axeSource); // by the debugger: the page's CSP need not allow it
  const result = await page.evaluate(() => (window as unknown as { axe: typeof axe }).axe.run(document));
  return result.violations.map((v) => `${v.impact}: ${v.id}: ${v.help}: ${v.nodes.map((n) => n.target.join(" ")).join(" | ")}`);
}

/**
 * The texts of an element that stick out of what does not scroll. What scrolls sideways counts if it
 * is a region that the keyboard reaches, such as a wide table: nobody pushes a whole page to and fro
 * to read a sentence.
 */
export async function cutOff(page: Page, selector: string): Promise<string[]> {
  return page.locator(selector).evaluateAll((elements) => {
    const out: string[] = [];
    const seen = (rect: DOMRect, from: Element): boolean => {
      let down = false; // can be scrolled to
      for (let e: Element | null = from; e; e = e.parentElement) {
        const { overflowX, overflowY } = getComputedStyle(e);
        const box = e.getBoundingClientRect();
        if (/auto|scroll/.test(overflowX) && e.matches("[tabindex='0']")) return true;
        if (overflowX !== "visible" && (rect.right > box.right + 1 || rect.left < box.left - 1)) return false;
        down ||= /auto|scroll/.test(overflowY);
        if (!down && overflowY !== "visible" && (rect.bottom > box.bottom + 1 || rect.top < box.top - 1)) return false;
      }
      return rect.left >= -1 && rect.right <= window.innerWidth + 1;
    };
    for (const element of elements) {
      const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
      for (let node = texts.nextNode(); node; node = texts.nextNode()) {
        const range = document.createRange();
        range.selectNodeContents(node);
        const parent = node.parentElement;
        if (parent && ![...range.getClientRects()].every((r) => seen(r, parent))) out.push((node.textContent ?? "").slice(0, 60));
      }
    }
    return out;
  });
}

/** Each page with what must be on it. */
export function pagesOf(s: Subjects): { name: string; path: string; shows: string | RegExp }[] {
  const pod = `${s.pending.namespace}/${s.pending.name}`;
  return [
    { name: "fabric-treemap", path: "/", shows: "Fabric map" },
    { name: "fabric-tree", path: "/?view=tree&size=2", shows: s.cluster.nodes[0]?.name ?? "" },
    { name: "node", path: `/nodes/${s.node}`, shows: "Link matrix" },
    { name: "workloads", path: "/workloads", shows: pod },
    { name: "pod-pending", path: `/workloads?state=pending&pod=${encodeURIComponent(pod)}`, shows: "Nearest nodes" },
    {
      name: "pod-running",
      path: `/workloads?state=running&pod=${encodeURIComponent(`${s.running.namespace}/${s.running.name}`)}`,
      shows: "Where it is",
    },
    { name: "gangs", path: "/gangs", shows: s.gang.name },
    { name: "gang", path: `/gangs/${s.gang.namespace}/${s.gang.name}`, shows: "Ranks on the fabric" },
    { name: "pools", path: "/pools", shows: "Guaranteed" },
    { name: "pools-hours", path: "/pools?tab=hours", shows: "By GPU model" },
    { name: "pools-usage", path: "/pools?tab=usage", shows: "Quantity" },
    { name: "pools-bills", path: "/pools?tab=bills", shows: "Accrued" },
    { name: "history", path: `/history/${s.running.namespace}/${s.running.name}`, shows: s.running.node },
  ];
}

export { expect };
