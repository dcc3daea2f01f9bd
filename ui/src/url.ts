// SPDX-License-Identifier: Apache-2.0
import { useCallback } from "react";
import { useSearchParams } from "wouter";

/** The query with some parameters changed; an empty one is left out. */
export function withParams(query: URLSearchParams, change: Record<string, string>): URLSearchParams {
  const next = new URLSearchParams(query);
  for (const [key, value] of Object.entries(change)) {
    if (value) next.set(key, value);
    else next.delete(key);
  }
  return next;
}

export type SetParams = (change: Record<string, string>, replace?: boolean) => void;

/** The page's state as it is in the URL, and how it is changed. */
export function useParams(): [URLSearchParams, SetParams] {
  const [query, setQuery] = useSearchParams();
  const set = useCallback<SetParams>((change, replace = false) => setQuery((old) => withParams(old, change), { replace }), [setQuery]);
  return [query, set];
}

export function nodePath(name: string): string {
  return `/nodes/${encodeURIComponent(name)}`;
}

/** Where a pod is explained; name is namespace/name. */
export function podPath(name: string): string {
  return `/workloads?pod=${encodeURIComponent(name)}`;
}

export function gangPath(name: string): string {
  return `/gangs/${name.split("/").map(encodeURIComponent).join("/")}`;
}

export function historyPath(name: string): string {
  return `/history/${name.split("/").map(encodeURIComponent).join("/")}`;
}
