// SPDX-License-Identifier: Apache-2.0
import { expect, open, settled, test } from "./fixtures";

test("the keyboard alone leads from a pending pod to the pod that blocks it", async ({ page, subjects }) => {
  const pending = `${subjects.pending.namespace}/${subjects.pending.name}`;
  await open(page, "/");
  await page.keyboard.press("g");
  await page.keyboard.press("w");
  await settled(page);
  await page.keyboard.press("/");
  await page.keyboard.type(pending);
  await page.keyboard.press("Enter"); // to the list
  await expect(page.getByRole("grid", { name: /Pending/ })).toBeFocused();
  await page.keyboard.press("Enter"); // opens its first row
  const panel = page.getByRole("dialog");
  await expect(panel).toContainText(pending);
  await expect(panel).toContainText("Nearest nodes");
  for (let i = 0; i < 20; i++) {
    await page.keyboard.press("j");
    if ((await page.evaluate(() => document.activeElement?.textContent)) === subjects.blocker) break;
  }
  await expect(panel.getByRole("link", { name: subjects.blocker, exact: true }).first()).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(encodeURIComponent(subjects.blocker)));
  await expect(panel).toContainText("Where it is");
  await page.keyboard.press("Escape");
  await expect(panel).toBeHidden();
});

test("Enter opens a row that matches, also when it follows the typing at once", async ({ page, subjects }) => {
  const pending = `${subjects.pending.namespace}/${subjects.pending.name}`;
  await open(page, "/workloads");
  await expect(page.getByRole("grid", { name: /Pending/ })).toBeVisible();
  await page.evaluate(async (text) => {
    const enter = () => new KeyboardEvent("keydown", { key: "Enter", bubbles: true });
    const search = document.querySelector<HTMLInputElement>("#search");
    if (!search) throw new Error("there is no search");
    search.focus();
    search.select();
    document.execCommand("insertText", false, text);
    await Promise.resolve(); // React renders what the event changed, and nothing that it deferred
    search.dispatchEvent(enter()); // to the list
    await Promise.resolve();
    document.activeElement?.dispatchEvent(enter()); // opens its first row
  }, pending);
  await expect(page.getByRole("dialog")).toContainText(pending);
});

test("keys lead to each page, and ? shows them", async ({ page }) => {
  await open(page, "/");
  for (const [key, title] of [
    ["w", "Workloads"],
    ["g", "Gangs"],
    ["p", "Pools"],
    ["f", "Fabric map"],
  ] as const) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await expect(page.getByRole("heading", { level: 1 })).toHaveText(title);
  }
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog", { name: "Keys" })).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog", { name: "Keys" })).toBeHidden();
});

test("arrows move in the treemap and the tree, and Enter opens", async ({ page }) => {
  await open(page, "/");
  await page.keyboard.press("j");
  const map = page.getByRole("listbox");
  await expect(map).toBeFocused();
  const first = await map.getAttribute("aria-activedescendant");
  await page.keyboard.press("ArrowDown");
  await expect(map).not.toHaveAttribute("aria-activedescendant", first ?? "");

  await open(page, "/?view=tree");
  const tree = page.getByRole("treegrid");
  await page.keyboard.press("j");
  await expect(tree).toBeFocused();
  const rows = await tree.getAttribute("aria-rowcount");
  await page.keyboard.press("j");
  await page.keyboard.press("ArrowLeft"); // folds the first domain
  await expect(tree).not.toHaveAttribute("aria-rowcount", rows ?? "");
  await expect(page).toHaveURL(/fold=/);
  await page.keyboard.press("End");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/nodes\//);
});
