// SPDX-License-Identifier: Apache-2.0
import { defineConfig } from "@playwright/test";

// With NVTOPO_UI_URL the tests run on that server, otherwise on the mock: 64 nodes for the pages,
// 1000 with 50 changes a second for the load.
const url = process.env.NVTOPO_UI_URL;
const mocks = [
  { port: 4173, env: { MOCK: "1", MOCK_NODES: "64", MOCK_RATE: "5" } },
  { port: 4174, env: { MOCK: "1", MOCK_NODES: "1000", MOCK_RATE: "50" } },
];

export default defineConfig({
  testDir: "e2e",
  outputDir: "test-results",
  workers: 1, // two cores: a second browser would disturb what is measured
  timeout: 60_000,
  expect: { timeout: 10_000 },
  forbidOnly: true,
  reporter: [["list"]],
  use: {
    viewport: { width: 1280, height: 800 },
    contextOptions: { reducedMotion: "reduce" },
    ignoreHTTPSErrors: url?.startsWith("https:") ?? false, // with --require-token it makes its certificate itself
    launchOptions: {
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--js-flags=--expose-gc",
      ],
    },
  },
  projects: [
    { name: "pages", testIgnore: /load/, use: { baseURL: url ?? "http://127.0.0.1:4173" } },
    { name: "load", testMatch: /load/, use: { baseURL: url ?? "http://127.0.0.1:4174" } },
  ],
  ...(url
    ? {}
    : {
        webServer: mocks.map(({ port, env }) => ({
          command: `npx vite preview --host 127.0.0.1 --strictPort --port ${port}`,
          url: `http://127.0.0.1:${port}/`,
          env: { ...env },
        })),
      }),
});
