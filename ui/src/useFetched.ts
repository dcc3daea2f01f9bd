// SPDX-License-Identifier: Apache-2.0
import { useCallback, useEffect, useState } from "react";

import { APIError, get } from "./api";

export interface Fetched<T> {
  value: T | null; // the last answer for this path; kept while it is asked again
  error: APIError | null;
  retry: () => void;
}

interface Answer<T> {
  path: string;
  asked: unknown; // the version that it is an answer for
  value: T | null;
  error: APIError | null;
  at: number;
}

// How long after an answer the same is asked again because the cluster has changed, in ms.
const pace = 2_000;

/** What the server answers for a path, asked again after `version` has changed. */
export function useFetched<T>(path: string, version: unknown): Fetched<T> {
  const [asked, setAsked] = useState(version);
  const [tries, setTries] = useState(0);
  const [answer, setAnswer] = useState<Answer<T> | null>(null);

  useEffect(() => {
    const abort = new AbortController();
    const settle = (value: T | null, error: APIError | null) => {
      if (abort.signal.aborted) return;
      setAnswer((old) => ({ path, asked, value: value ?? (old?.path === path ? old.value : null), error, at: Date.now() }));
    };
    get<T>(path, abort.signal).then(
      (value) => settle(value, null),
      (e: unknown) => settle(null, e instanceof APIError ? e : new APIError(0, String(e), "")),
    );
    return () => abort.abort();
  }, [path, asked, tries]);

  const done = answer?.path === path && answer.asked === asked;
  const next = (answer?.at ?? 0) + pace;
  useEffect(() => {
    if (!done || version === asked) return;
    const timer = setTimeout(() => setAsked(version), Math.max(0, next - Date.now()));
    return () => clearTimeout(timer);
  }, [done, version, asked, next]);

  const retry = useCallback(() => setTries((n) => n + 1), []);
  const mine = answer?.path === path ? answer : null;
  return { value: mine?.value ?? null, error: mine?.error ?? null, retry };
}
