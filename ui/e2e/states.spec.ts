// SPDX-License-Identifier: Apache-2.0

// What the pages say when there is nothing to show, or no server. Answers are replaced in the
// browser, so these run on any server.

import type { Page } from "@playwright/test";

import type { Cluster, Explanation } from "../src/api";
import { cutOff, expect, findings, open, test } from "./fixtures";

test.use({ failing: true });

async function answer(page: Page, path: string, status: number, body: unknown): Promise<void> {
  await page.route(`**/api/v1/${path}`, (route) => route.fulfill({ status, json: body }));
}

test("without GPUs the map says how to install the exporter", async ({ page, subjects }) => {
  const none: Cluster = { ...subjects.cluster, nodes: [], supply: { nodes: 0, gpus: 0, usedGPUs: 0, freeGPUs: 0, badGPUs: 0, slots: [] } };
  await answer(page, "cluster", 200, none);
  await page.route("**/api/v1/stream", (route) => route.abort());
  await page.goto("/");
  await expect(page.getByText("No node reports GPUs.")).toBeVisible();
  await expect(page.getByText("nvtopo-exporter")).toBeVisible();
  expect(await findings(page)).toEqual([]);
});

test("without workloads the page says so", async ({ page }) => {
  await answer(page, "workloads", 200, {
    version: 1,
    moment: "2026-01-01T00:00:00Z",
    counts: { pending: 0, running: 0, ended: 0, failing: 0 },
    items: [],
  });
  await page.route("**/api/v1/stream", (route) => route.abort());
  await page.goto("/workloads");
  await expect(page.getByText("Nothing waits.")).toBeVisible();
  expect(await findings(page)).toEqual([]);
});

test("without pools and gangs in the cluster their pages say what to install", async ({ page, subjects }) => {
  await answer(page, "cluster", 200, { ...subjects.cluster, features: { pools: false, gangs: false } });
  await page.goto("/pools");
  await expect(page.getByText("Pools are not installed")).toBeVisible();
  await page.goto("/gangs");
  await expect(page.getByText("no PodGroups")).toBeVisible();
});

test("a server that asks for a token gets one", async ({ page }) => {
  let header: string | undefined;
  await page.route("**/api/v1/**", async (route) => {
    header = route.request().headers()["authorization"];
    if (header === "Bearer right") await route.fallback();
    else await route.fulfill({ status: 401, json: { error: "No token was sent.", hint: "Send one." } });
  });
  await page.goto("/");
  await expect(page.getByText("No token was sent.")).toBeVisible();
  await page.getByLabel(/^Token/).fill("wrong");
  await page.getByRole("button", { name: "Use it" }).click();
  await expect(page.getByText("not accepted")).toBeVisible();
  expect(await findings(page)).toEqual([]);
  await page.getByLabel(/^Token/).fill("right");
  const asked = page.waitForRequest((r) => r.headers()["authorization"] === "Bearer right");
  await page.getByRole("button", { name: "Use it" }).click();
  await asked;
  expect(
    await page.evaluate(() => ({ kept: sessionStorage.getItem("nvtopo-token"), other: localStorage.getItem("nvtopo-token") })),
  ).toEqual({
    kept: "right",
    other: null,
  });
});

test("a server that is gone is asked again, and what was shown stays", async ({ page }) => {
  await open(page, "/");
  await page.route("**/api/v1/**", (route) => route.abort());
  // The stream that is open does not notice a route; a reload does.
  await page.reload();
  await expect(page.getByRole("alert")).toContainText("The server cannot be reached.");
  expect(await findings(page)).toEqual([]);
  // The page asks again by itself, too, and once it is answered the button is gone.
  const asked = page.waitForRequest("**/api/v1/**");
  await page.getByRole("button", { name: "Try again" }).click();
  await asked;
  await page.unrouteAll();
  await expect(page.getByRole("heading", { name: "Fabric map" })).toBeVisible();
});

test("a page that is not seen ends its stream, and goes on when it is seen", async ({ page }) => {
  const see = (state: string) =>
    page.evaluate((s) => {
      Object.defineProperty(document, "visibilityState", { configurable: true, value: s });
      document.dispatchEvent(new Event("visibilitychange"));
    }, state);
  await open(page, "/");
  const ended = page.waitForEvent("requestfailed", (r) => r.url().endsWith("/stream"));
  await see("hidden");
  await ended;
  const asked = page.waitForRequest((r) => r.url().endsWith("/stream"));
  await see("visible");
  expect(Number((await asked).headers()["last-event-id"])).toBeGreaterThan(0);
});

test("a node and a pod that are not there, and a page that is none", async ({ page }) => {
  await open(page, "/nodes/no-such-node");
  await expect(page.getByRole("alert")).toBeVisible();
  expect(await findings(page)).toEqual([]);
  await page.goto("/history/none/none");
  await expect(page.getByRole("alert")).toBeVisible();
  await page.goto("/no/such/page");
  await expect(page.getByText("There is no such page.")).toBeVisible();
});

for (const width of [1280, 360]) {
  test.describe(`at ${width} pixels`, () => {
    test.use({ viewport: { width, height: 740 } });
    test("an explanation is never cut off, however long its texts are", async ({ page, subjects }) => {
      const { namespace, name } = subjects.pending;
      await answer(page, `explain/pod/${namespace}/${name}`, 200, longExplanation(namespace, name));
      await open(page, `/workloads?state=pending&pod=${encodeURIComponent(`${namespace}/${name}`)}`);
      await expect(page.getByText("END-OF-SCHEDULER")).toBeAttached();
      expect(await cutOff(page, ".explanation")).toEqual([]);
      await page.getByText("END-OF-SCHEDULER").scrollIntoViewIfNeeded();
      await expect(page.getByText("END-OF-SCHEDULER")).toBeInViewport();
    });

    test("an explanation of a gang is never cut off", async ({ page, subjects }) => {
      const { namespace, name } = subjects.gang;
      await page.route(`**/api/v1/gangs/${namespace}/${name}`, async (route) => {
        const gang = (await (await route.fetch()).json()) as object;
        const reason = `${long("why")} END-OF-REASON`;
        await route.fulfill({ json: { ...gang, reason, explanation: { ...longExplanation(namespace, name), kind: "PodGroup" } } });
      });
      await open(page, `/gangs/${namespace}/${name}`);
      await expect(page.getByText("END-OF-REASON")).toBeAttached();
      expect(await cutOff(page, ".explanation")).toEqual([]);
      expect(await cutOff(page, ".notice")).toEqual([]);
    });
  });
}

/** Many words, and one that no line holds. */
function long(word: string): string {
  return `${`${word} `.repeat(80)}${word.repeat(120)}`;
}

function longExplanation(namespace: string, name: string): Explanation {
  const node = `node-${"n".repeat(240)}`;
  return {
    kind: "Pod",
    namespace,
    name,
    state: "Pending",
    cause: long("cause"),
    reason: long("reason"),
    next: long("next"),
    evidence: [long("evidence"), long("more")],
    candidates: [
      {
        node,
        free: 3,
        exact: false,
        blockers: [{ pod: `${"s".repeat(63)}/${"p".repeat(253)}`, priority: 1, gpus: [0, 1, 2, 3, 4, 5, 6, 7], stays: long("stays") }],
        gets: { ring: Array.from({ length: 64 }, (_, i) => i), linkClass: "NV18", bandwidthGBps: 450, bestGBps: 450, band: 1 },
      },
      { node: "n2", free: 1, exact: true, obstacles: [{ cause: "a", text: long("obstacle"), detail: long("detail") }] },
    ],
    refusals: [{ cause: "a", text: long("refusal"), nodes: 1000, named: [node, node + "2"] }],
    relaxations: [{ wish: long("wish"), nodes: 3, node }],
    gang: { name: `${"g".repeat(63)}/${"h".repeat(253)}`, minimum: 8, have: 8, placed: 0, required: "rack", room: 2 },
    scheduler: `${long("scheduler")} END-OF-SCHEDULER`,
  };
}
