// SPDX-License-Identifier: Apache-2.0
import react from "@vitejs/plugin-react";
import type { ProxyOptions } from "vite";
import { defineConfig } from "vite";

import { mock } from "./mock/plugin";

const policy =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; " +
  "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

// A server with --require-token makes its certificate itself, so that is not checked.
const target = process.env.NVTOPO_UI_URL;
const proxy: Record<string, ProxyOptions> = target ? { "/api": { target, changeOrigin: true, secure: false } } : {};

// With NVTOPO_UI_URL, `npm run dev` shows what that server answers; with MOCK=1 a made-up cluster.
export default defineConfig({
  plugins: [react(), process.env.MOCK ? mock() : []],
  server: { proxy },
  // The headers of the real server, so that tests on the mock fail for what it would refuse.
  preview: { proxy, headers: { "Content-Security-Policy": policy } },
  build: { sourcemap: false, chunkSizeWarningLimit: 700, assetsInlineLimit: 0 },
});
