// SPDX-License-Identifier: Apache-2.0

// GPU hours of a time: what is asked for, and how it is shown.

/** Times to choose from, with what the URL has of each; empty is this month. */
export function timesFrom(now: Date): { value: string; label: string }[] {
  const last = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - 1, 1)).toISOString().slice(0, 7);
  return [
    { value: "", label: "This month (UTC)" },
    { value: last, label: `Last month, ${last}` },
    { value: "7d", label: "Last 7 days" },
    { value: "30d", label: "Last 30 days" },
    { value: "90d", label: "Last 90 days" },
  ];
}

/** Path of the hours of a time, of one tenant or of all. A time is as nvtopo pool usage takes it with --since or --period. */
export function hoursPath(time: string, tenant: string): string {
  const query = new URLSearchParams();
  if (time) query.set(/^\d+[a-z]/.test(time) ? "since" : "period", time);
  if (tenant) query.set("tenant", tenant);
  const text = query.toString();
  return text ? `pools/hours?${text}` : "pools/hours";
}

export function csvPath(time: string, tenant: string): string {
  const path = hoursPath(time, tenant);
  return `${path}${path.includes("?") ? "&" : "?"}format=csv`;
}

const day = 24 * 60 * 60 * 1000;

/** The time of whole days, both included; empty if they are none. */
export function timeOfDays(first: string, last: string): string {
  const end = Date.parse(last);
  if (!first || Number.isNaN(end) || first > last) return "";
  return `${first}/${new Date(end + day).toISOString().slice(0, 10)}`;
}

/** The days of a time that timeOfDays made. */
export function daysOfTime(time: string): { first: string; last: string } {
  const [, first, end] = /^(\d{4}-\d\d-\d\d)\/(\d{4}-\d\d-\d\d)$/.exec(time) ?? [];
  if (!first || !end) return { first: "", last: "" };
  return { first, last: new Date(Date.parse(end) - day).toISOString().slice(0, 10) };
}

/** Hours with two places, as the command prints them. */
export function hoursText(hours: string): string {
  return Number(hours).toFixed(2);
}

/** A part of all hours in percent; of nothing there is none. */
export function shareText(part: string, all: string): string {
  return Number(all) > 0 ? `${((100 * Number(part)) / Number(all)).toFixed(1)} %` : "–";
}

/** A queue or model, or that there is no record of it. */
export function recorded(name: string): string {
  return name || "not recorded";
}
