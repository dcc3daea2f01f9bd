// SPDX-License-Identifier: Apache-2.0

// GPU hours: the tables are sums, most first; a time is chosen; the file has what the tables have.

import fs from "node:fs/promises";
import type { Page } from "@playwright/test";

import { expect, open, settled, test } from "./fixtures";

const titles = ["By tenant", "By queue", "By GPU model"] as const;

interface Row {
  name: string;
  hours: number;
  invoiced: number;
  sessions: number;
}

/** The rows of a table as they are shown, the total last; those of a filtered table have none. */
async function rowsOf(page: Page, title: string): Promise<Row[]> {
  const cells = await page
    .getByRole("region", { name: `GPU hours ${title.toLowerCase()}` })
    .locator("tbody tr")
    .evaluateAll((rows) => rows.map((r) => [...r.children].map((c) => c.textContent ?? "")));
  return cells.map(([name = "", hours, , invoiced, sessions]) => ({
    name,
    hours: Number(hours),
    invoiced: Number(invoiced),
    sessions: Number(sessions),
  }));
}

/** A number of which the tables have two places. */
function twoPlaces(n: number): unknown {
  return expect.closeTo(n, 1.7); // 10^-1.7 / 2: a hundredth
}

/** A time that is over: what runs now does not change its hours. */
function past(): string {
  const second = (ms: number) => `${new Date(ms).toISOString().slice(0, 19)}Z`;
  const hour = 60 * 60 * 1000;
  return `${second(Date.now() - 7 * 24 * hour)}/${second(Date.now() - hour)}`;
}

function pathOf(time: string): string {
  return `/pools?tab=hours&time=${encodeURIComponent(time)}`;
}

/** What the link downloads: the lines of the file, by the names of its columns. */
async function download(page: Page): Promise<{ header: string; rows: Record<string, string>[] }> {
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Download as CSV" }).click()]);
  expect(file.suggestedFilename()).toMatch(/^gpu-hours.*\.csv$/);
  const [header = "", ...lines] = (await fs.readFile(await file.path(), "utf8")).trimEnd().split("\n");
  const names = header.split(",");
  return { header, rows: lines.map((l) => Object.fromEntries(l.split(",").map((value, i) => [names[i] ?? "", value]))) };
}

test("each table is a sum, the most hours first", async ({ page }) => {
  await open(page, pathOf(past()));
  const said = Number(/^[\d.]+/.exec(await page.getByText(/ GPU hours .*from /).innerText())?.[0]);
  expect(said).toBeGreaterThan(0);
  for (const title of titles) {
    const rows = await rowsOf(page, title);
    const total = rows.pop();
    expect(total, title).toMatchObject({ name: "total", hours: said });
    expect(
      rows.map((r) => r.hours),
      title,
    ).toEqual(rows.map((r) => r.hours).sort((a, b) => b - a));
    for (const of of ["hours", "invoiced", "sessions"] as const)
      expect(Math.abs(rows.reduce((n, r) => n + r[of], 0) - (total?.[of] ?? 0)), `${title}, ${of}`).toBeLessThanOrEqual(
        0.005 * (rows.length + 1),
      );
  }
});

test("the file has the rows of the tables", async ({ page }) => {
  const time = past();
  await open(page, pathOf(time));
  const file = await download(page);
  expect(file.header).toBe("from,until,tenant,queue,model,source,hours,sessions");
  const counted = file.rows.filter((r) => r.hours !== "");
  for (const r of counted.filter((c) => c.source === "sessions")) expect(`${r.from}/${r.until}`).toBe(time); // an invoice has its month
  expect(counted.length).toBeGreaterThan(0);
  for (const [i, column] of (["tenant", "queue", "model"] as const).entries()) {
    const sums = new Map<string, Row>();
    for (const r of counted) {
      const name = r[column] || "not recorded";
      const sum = sums.get(name) ?? { name, hours: 0, invoiced: 0, sessions: 0 };
      sum.hours += Number(r.hours);
      sum.invoiced += r.source === "invoice" ? Number(r.hours) : 0;
      sum.sessions += Number(r.sessions);
      sums.set(name, sum);
    }
    const byName = (a: Row, b: Row) => (a.name < b.name ? -1 : 1);
    const want = [...sums.values()].filter((r) => r.hours > 0).sort(byName);
    const shown = (await rowsOf(page, titles[i] ?? "")).slice(0, -1).filter((r) => r.hours > 0); // who used nothing has no queue and no model
    expect(shown.sort(byName), column).toEqual(want.map((r) => ({ ...r, hours: twoPlaces(r.hours), invoiced: twoPlaces(r.invoiced) })));
  }
});

test("a time that is chosen is in the URL, in the text and in the file", async ({ page }) => {
  await open(page, "/pools?tab=hours");
  await page.getByLabel("Time", { exact: true }).selectOption("7d");
  await expect(page).toHaveURL(/time=7d/);
  await settled(page);
  const day = (back: number) => new Date(Date.now() - back * 24 * 60 * 60 * 1000).toISOString().slice(0, 10);
  await expect(page.getByText(/ GPU hours .*from /)).toContainText(`from ${day(7)}`);

  await page.getByLabel("First day").fill(day(3));
  await page.getByLabel("Last day").fill(day(2));
  await expect(page).toHaveURL(new RegExp(`time=${day(3)}%2F${day(1)}`));
  await settled(page);
  await expect(page.getByText(/ GPU hours .*from /)).toContainText(`from ${day(3)}T00:00:00Z`);
  await expect(page.getByText(/ GPU hours .*from /)).toContainText(`until ${day(1)}T00:00:00Z`);
  for (const r of (await download(page)).rows) expect(`${r.from}/${r.until}`).toBe(`${day(3)}T00:00:00Z/${day(1)}T00:00:00Z`);
});

test("a tenant opens its own hours, and the search leaves the rows that have it", async ({ page }) => {
  const time = past();
  await open(page, pathOf(time));
  const [first] = await rowsOf(page, "By tenant");
  const tenant = first?.name ?? "";
  await page.getByRole("button", { name: tenant, exact: true }).click();
  await expect(page).toHaveURL(new RegExp(`tenant=${tenant}`));
  await settled(page);
  await expect(page.getByText(` GPU hours of ${tenant} from `)).toBeVisible();
  expect(await rowsOf(page, "By tenant")).toEqual([first, { ...first, name: "total" }]);
  for (const r of (await download(page)).rows) expect(r.tenant).toBe(tenant);

  await page.getByRole("button", { name: "All tenants" }).click();
  await settled(page);
  await page.getByRole("searchbox").fill(tenant);
  await expect.poll(async () => (await rowsOf(page, "By tenant")).map((r) => r.name)).toEqual([tenant]); // a part has no total
});
