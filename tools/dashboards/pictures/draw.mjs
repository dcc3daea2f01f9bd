// SPDX-License-Identifier: Apache-2.0
//
// Draws every dashboard of a folder to a picture, with a Chromium that is there, from what a Prometheus has:
// node draw.mjs DASHBOARDS PICTURES PROMETHEUS START END (in seconds since 1970).

import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { build } from 'esbuild';
import { chromium } from 'playwright-core';
import UPNG from 'upng-js';

const [dashboards, pictures, prometheus, start, end] = process.argv.slice(2);
const points = 120; // of each line
const colours = 64; // a third of the size, and the same to the eye
const step = Math.max(5, Math.ceil((end - start) / points));
const range = { prometheus, start: Math.floor(start / step) * step, end: Math.floor(end / step) * step, step };

const { outputFiles: [script, style] } = await build({
  entryPoints: [join(import.meta.dirname, 'page.jsx')], outdir: 'page', write: false,
  bundle: true, format: 'iife', jsx: 'automatic', minify: true, logLimit: 5,
  define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
  loader: { '.svg': 'text', '.png': 'dataurl', '.ttf': 'empty' },
});
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run'],
});
await mkdir(pictures, { recursive: true });
for (const name of (await readdir(dashboards)).filter((name) => name.endsWith('.json'))) {
  const page = await browser.newPage({ viewport: { width: 1400, height: 1000 } });
  page.on('pageerror', (error) => console.error(name, error.message));
  await page.goto(prometheus + '/-/healthy'); // of the origin that the page asks
  await page.addScriptTag({ content: script.text });
  await page.addStyleTag({ content: style.text });
  const series = await page.evaluate(([board, range]) => window.draw(board, range), [JSON.parse(await readFile(join(dashboards, name))), range]);
  console.log(name, JSON.stringify(series, null, 1));
  await page.waitForTimeout(1000); // lines are drawn after their data came
  const picture = UPNG.decode(await page.locator('#board').screenshot());
  const small = UPNG.encode(UPNG.toRGBA8(picture), picture.width, picture.height, colours);
  await writeFile(join(pictures, name.replace('.json', '.png')), Buffer.from(small));
  await page.close();
}
await browser.close();
