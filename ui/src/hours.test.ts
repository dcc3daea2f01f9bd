// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";

import { podOf } from "./api";
import { csvPath, daysOfTime, hoursPath, hoursText, recorded, shareText, timeOfDays, timesFrom } from "./hours";

describe("the time of GPU hours", () => {
  it("is this month, unless another is chosen", () => {
    expect(timesFrom(new Date("2026-01-15T00:00:00Z")).map((t) => t.value)).toEqual(["", "2025-12", "7d", "30d", "90d"]);
  });
  const paths: Record<string, { time: string; tenant: string; want: string }> = {
    "this month": { time: "", tenant: "", want: "pools/hours" },
    "the last days": { time: "30d", tenant: "", want: "pools/hours?since=30d" },
    "a month of a tenant": { time: "2026-11", tenant: "team-a", want: "pools/hours?period=2026-11&tenant=team-a" },
    "some days": { time: "2026-11-01/2026-11-16", tenant: "", want: "pools/hours?period=2026-11-01%2F2026-11-16" },
  };
  it.each(Object.entries(paths))("%s", (_, { time, tenant, want }) => expect(hoursPath(time, tenant)).toBe(want));
  it("is the same in CSV", () => {
    expect(csvPath("", "")).toBe("pools/hours?format=csv");
    expect(csvPath("7d", "a")).toBe("pools/hours?since=7d&tenant=a&format=csv");
  });
  it("of days has the last one in it", () => {
    expect(timeOfDays("2026-11-01", "2026-11-30")).toBe("2026-11-01/2026-12-01");
    expect(daysOfTime("2026-11-01/2026-12-01")).toEqual({ first: "2026-11-01", last: "2026-11-30" });
    expect(daysOfTime("2026-11")).toEqual({ first: "", last: "" });
    expect([timeOfDays("2026-11-02", "2026-11-01"), timeOfDays("", "2026-11-01"), timeOfDays("2026-11-01", "")]).toEqual(["", "", ""]);
  });
});

it("hours are as the command prints them", () => {
  expect(hoursText("0.083333")).toBe("0.08");
  expect([shareText("1", "3"), shareText("0", "0")]).toEqual(["33.3 %", "–"]);
  expect([recorded(""), recorded("training")]).toEqual(["not recorded", "training"]);
});

it("a session's pod is in its namespace, not in one of the tenant's name", () => {
  const spec = { tenant: "team-c", pool: "p", pod: "x", node: "n", resource: "nvidia.com/gpu", quantity: "1", start: "" };
  expect(podOf({ metadata: { name: "u", namespace: "research" }, spec: { ...spec, namespace: "research" } })).toBe("research/x");
  // A record of before its spec had the namespace is in it.
  expect(podOf({ metadata: { name: "u", namespace: "research" }, spec })).toBe("research/x");
  // One that was moved, since its namespace went, is in the controller's.
  expect(podOf({ metadata: { name: "u", namespace: "nvtopo-system" }, spec: { ...spec, namespace: "research" } })).toBe("research/x");
});
