// SPDX-License-Identifier: Apache-2.0
import { Button, Paper, Skeleton, Text } from "@mantine/core";
import type { ReactNode } from "react";

import type { APIError } from "../api";

/** Something that the reader should know of what the page shows. */
export function Notice({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="notice" role="note">
      <b>{title}</b>
      {children && <div>{children}</div>}
    </div>
  );
}

/** Says what went wrong and what to do. */
export function ErrorState({ error, retry }: { error: APIError; retry?: () => void }) {
  return (
    <div className="notice notice-error" role="alert">
      <b>{error.message}</b>
      {error.hint && <div>{error.hint}</div>}
      {retry && (
        <Button size="xs" variant="default" mt="xs" onClick={retry}>
          Try again
        </Button>
      )}
    </div>
  );
}

/** Says that there is nothing, and what would bring something. */
export function EmptyState({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <Paper withBorder p="lg" className="state">
      <Text fw={600}>{title}</Text>
      {children && (
        <Text size="sm" mt={4}>
          {children}
        </Text>
      )}
    </Paper>
  );
}

export function Loading() {
  return (
    <div aria-busy="true" aria-label="loading" role="status">
      <Skeleton height={28} mb="sm" width="40%" />
      <Skeleton height={180} />
    </div>
  );
}
