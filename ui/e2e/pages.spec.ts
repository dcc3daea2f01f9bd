// SPDX-License-Identifier: Apache-2.0

// Every page in light and dark, wide and narrow: a screenshot each, and no finding of axe.

import path from "node:path";

import { expect, findings, open, pagesOf, settled, test } from "./fixtures";

const out = process.env.NVTOPO_UI_OUT ?? path.resolve("../out/ui");

for (const scheme of ["light", "dark"] as const) {
  test.describe(scheme, () => {
    test.use({ colorScheme: scheme });
    test("every page shows what it is about, and axe finds nothing", async ({ page, subjects }) => {
      test.slow();
      for (const p of pagesOf(subjects)) {
        await open(page, p.path);
        await expect(page.getByText(p.shows).filter({ visible: true }).first(), p.name).toBeVisible();
        await page.screenshot({ path: path.join(out, `${p.name}-${scheme}.png`) });
        expect.soft(await findings(page), `${p.name}, ${scheme}`).toEqual([]);
      }
    });
  });
}

test.describe("narrow", () => {
  test.use({ viewport: { width: 360, height: 740 } });
  test("no page is wider than a screen of 360 pixels", async ({ page, subjects }) => {
    test.slow();
    for (const p of pagesOf(subjects)) {
      await open(page, p.path);
      await page.screenshot({ path: path.join(out, `${p.name}-narrow.png`) });
      expect.soft(await page.evaluate(() => document.documentElement.scrollWidth), p.name).toBeLessThanOrEqual(360);
      expect.soft(await findings(page), p.name).toEqual([]);
    }
  });
});

test("a click leads from the map to a node, from there to a pod, and to its history", async ({ page, subjects }) => {
  await open(page, "/?view=tree");
  await page.getByRole("searchbox").fill(subjects.running.node);
  await page.getByRole("row", { name: new RegExp(subjects.running.node) }).click();
  await expect(page).toHaveURL(new RegExp(`/nodes/${subjects.running.node}`));
  await settled(page);
  await page
    .getByRole("link", { name: `${subjects.running.namespace}/${subjects.running.name}` })
    .first()
    .click();
  await expect(page.getByRole("dialog")).toContainText("Where it is");
  await page.getByRole("dialog").getByRole("link", { name: "its history" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText(`History of ${subjects.running.namespace}/${subjects.running.name}`);
  await page.goBack();
  await expect(page.getByRole("dialog")).toContainText("Where it is");
});

test("tabs, views and searches are in the URL and survive a reload", async ({ page, subjects }) => {
  await open(page, "/");
  await page.getByText("Tree", { exact: true }).click();
  await page.getByLabel("Size of the slots").selectOption("2");
  await expect(page).toHaveURL(/view=tree.*size=2|size=2.*view=tree/);
  await page.reload();
  await settled(page);
  await expect(page.getByRole("treegrid")).toBeVisible();
  await expect(page.getByLabel("Size of the slots")).toHaveValue("2");

  await open(page, "/workloads");
  await page.getByRole("tab", { name: /running/ }).click();
  await page.getByRole("searchbox").fill(subjects.running.name);
  await page.reload();
  await settled(page);
  await expect(page.getByRole("tab", { name: /running/ })).toHaveAttribute("aria-selected", "true");
  await expect(page.getByRole("grid")).toContainText(subjects.running.name);
});

test("colours are switched by a button, and stay so", async ({ page }) => {
  await open(page, "/");
  await page.getByRole("button", { name: /switch to light/ }).click();
  await page.getByRole("button", { name: /switch to dark/ }).click();
  await expect(page.locator("html")).toHaveAttribute("data-mantine-color-scheme", "dark");
  await page.reload();
  await expect(page.locator("html")).toHaveAttribute("data-mantine-color-scheme", "dark");
});
