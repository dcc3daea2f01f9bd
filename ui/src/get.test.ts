// SPDX-License-Identifier: Apache-2.0

import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { get } from "./api";

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("sessionStorage", { getItem: () => null });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** A server that answers with these statuses, and then always with the last one. */
function answering(...statuses: number[]) {
  const fetched = vi.fn(() => {
    const status = (statuses.length > 1 ? statuses.shift() : statuses[0]) ?? 200;
    return Promise.resolve(new Response(JSON.stringify(status === 200 ? { ok: true } : { error: `status ${status}` }), { status }));
  });
  vi.stubGlobal("fetch", fetched);
  return fetched;
}

it("who asked for too much at once asks again", async () => {
  const fetched = answering(429, 429, 200);
  const got = get("explain/pod/a/b");
  await vi.runAllTimersAsync();
  expect(await got).toEqual({ ok: true });
  expect(fetched).toHaveBeenCalledTimes(3);
});

it("but not for ever", async () => {
  const fetched = answering(429);
  const got = expect(get("explain/pod/a/b")).rejects.toMatchObject({ status: 429, message: "status 429" });
  await vi.runAllTimersAsync();
  await got;
  expect(fetched).toHaveBeenCalledTimes(8);
});

it("who asked while others had the turn asks again", async () => {
  const fetched = answering(503, 429, 200);
  const got = get("explain/pod/a/b");
  await vi.runAllTimersAsync();
  expect(await got).toEqual({ ok: true });
  expect(fetched).toHaveBeenCalledTimes(3);
});

it("and is told soon that a server stays unable", async () => {
  const fetched = answering(503);
  const got = expect(get("cluster")).rejects.toMatchObject({ status: 503 });
  await vi.runAllTimersAsync();
  await got;
  expect(fetched).toHaveBeenCalledTimes(4);
});

it("what is no answer for another reason is said at once", async () => {
  const fetched = answering(403, 200);
  await expect(get("cluster")).rejects.toMatchObject({ status: 403 });
  expect(fetched).toHaveBeenCalledTimes(1);
});

it("a page that is gone asks no more", async () => {
  const fetched = answering(429, 200);
  const gone = new AbortController();
  const got = expect(get("cluster", gone.signal)).rejects.toThrow();
  await vi.advanceTimersByTimeAsync(100);
  gone.abort();
  await vi.runAllTimersAsync();
  await got;
  expect(fetched).toHaveBeenCalledTimes(1);
});
