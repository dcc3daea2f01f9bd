// SPDX-License-Identifier: Apache-2.0

// What the page costs with 1000 nodes and 50 changes a second. On the mock also many of them as fast
// as the page takes them: NVTOPO_UI_CHANGES, 180000 for an hour. Times depend on the machine and on
// who else uses it, so they are measured and not judged: they are printed, and written to load.json
// beside the screenshots.

import fs from "node:fs";
import path from "node:path";
import type { Page } from "@playwright/test";

import { expect, open, test } from "./fixtures";

const out = process.env.NVTOPO_UI_OUT ?? path.resolve("../out/ui");
const changes = Number(process.env.NVTOPO_UI_CHANGES ?? 20_000);
const seconds = Number(process.env.NVTOPO_UI_SECONDS ?? 4); // for which frames are counted
const figures: Record<string, number | string> = {};

test.afterAll(() => {
  fs.mkdirSync(out, { recursive: true });
  fs.writeFileSync(path.join(out, "load.json"), `${JSON.stringify(figures, null, 2)}\n`);
  console.log(figures);
});

function note(name: string, value: number | string): void {
  figures[name] = typeof value === "number" ? Math.round(10 * value) / 10 : value;
}

/** Times between frames in ms, sorted, while the page is left alone for some seconds. */
async function frames(page: Page): Promise<number[]> {
  return page.evaluate(
    (ms) =>
      new Promise<number[]>((resolve) => {
        const times: number[] = [];
        let last = performance.now();
        const end = last + ms;
        const tick = (now: number) => {
          times.push(now - last);
          last = now;
          if (now < end) requestAnimationFrame(tick);
          else resolve(times.slice(1).sort((a, b) => a - b));
        };
        requestAnimationFrame(tick);
      }),
    seconds * 1000,
  );
}

function quantile(sorted: number[], q: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0;
}

/** Bytes of JavaScript's heap that are still needed. */
async function heap(page: Page): Promise<number> {
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("HeapProfiler.enable");
  await cdp.send("HeapProfiler.collectGarbage");
  const { usedSize } = await cdp.send("Runtime.getHeapUsage");
  await cdp.detach();
  return usedSize;
}

test("the map is there soon", async ({ page, subjects }) => {
  note("nodes", subjects.cluster.nodes.length);
  await page.goto("/");
  await page.locator("[role=listbox] [role=option]").first().waitFor();
  const ms = await page.evaluate(
    () =>
      new Promise<number>((resolve) => {
        // Interactive: a frame was drawn after the last long task.
        requestAnimationFrame(() => setTimeout(() => resolve(performance.now())));
      }),
  );
  note("time to interactive, ms", ms);
});

for (const [name, url] of [
  ["treemap", "/"],
  ["tree", "/?view=tree"],
  ["workloads", "/workloads"],
] as const) {
  test(`frames of the ${name} while the cluster changes`, async ({ page }) => {
    await open(page, url);
    await page.waitForTimeout(1_000);
    const times = await frames(page);
    note(`${name}: frame p50, ms`, quantile(times, 0.5));
    note(`${name}: frame p99, ms`, quantile(times, 0.99));
    note(`${name}: longest frame, ms`, times.at(-1) ?? 0);
    expect(times.length).toBeGreaterThan(0);
  });
}

test("many changes leave the heap as it was", async ({ page, request }) => {
  test.skip(process.env.NVTOPO_UI_URL !== undefined, "only the mock can make time run fast");
  test.setTimeout(300_000);
  await open(page, "/");
  const burst = async (changes: number) =>
    (await request.get(`/mock/burst?changes=${changes}`, { timeout: 240_000 })).json() as Promise<{ version: number }>;
  await burst(5_000); // caches are warm then
  await page.waitForTimeout(1_000);
  const before = await heap(page);
  const start = Date.now();
  const { version } = await burst(changes);
  await expect(page.locator("html")).toHaveAttribute("data-connection", "live");
  // The page has taken all of them once it shows what the server has now.
  await expect
    .poll(async () => Number(await page.locator("html").getAttribute("data-version")), { timeout: 60_000 })
    .toBeGreaterThanOrEqual(version);
  note("changes", changes);
  note("time for them, s", (Date.now() - start) / 1000);
  const after = await heap(page);
  note("heap before, MB", before / 1e6);
  note("heap after them, MB", after / 1e6);
  expect(after).toBeLessThan(before * 1.3 + 5e6);
});
